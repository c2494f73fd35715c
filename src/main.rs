//! Sets the process up and hands over to `cli`, which parses the arguments and returns the exit code.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // With transparent huge pages each thread's heap takes at least 2 MiB, many times what an idle socket needs. Fails
    // on kernels without this setting, where there is nothing to turn off.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    // Databases, keys and every other file that this process creates are readable for their owner only.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    deskgate::cli::run()
}
