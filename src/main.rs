//! The program: arguments in, exit code out.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Huge pages would give every little heap two megabytes: an idle socket costs many times its worth.
    // Where the kernel knows no such switch there is nothing to switch off.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    // Databases, keys and whatever else is made here is for the owner alone, wherever it lies.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    deskgate::cli::run()
}
