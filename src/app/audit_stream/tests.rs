use super::*;

fn in_file(folder: &Path, rotate_bytes: u64, rotate_keep: u32) -> AuditConfig {
    AuditConfig {
        output: AuditOutput::File,
        file: folder.join("audit.log"),
        rotate_bytes,
        rotate_keep,
        ..AuditConfig::default()
    }
}

fn open(config: &AuditConfig) -> (Arc<AuditStream>, AuditWriter) {
    let stream = AuditStream::open(config, Path::new("data"), Rotation::BySize).expect("opened").expect("a stream");
    (stream.clone(), AuditWriter(stream))
}

/// The files of a folder, each with its content.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .expect("folder")
        .map(|entry| entry.expect("entry").path())
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("text"))
        })
        .collect();
    files.sort();
    files
}

fn named(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_full_file_is_rotated_and_the_oldest_is_removed() {
    let folder = tempfile::tempdir().expect("folder");
    let (stream, mut writer) = open(&in_file(folder.path(), 8, 2));
    for line in ["one\n", "two\n", "three\n", "four\n", "a line that is longer than the file may be\n", "six\n"] {
        writer.write_all(line.as_bytes()).expect("never fails");
    }
    let expected = [
        ("audit.log", "six\n"),
        ("audit.log.1", "a line that is longer than the file may be\n"),
        ("audit.log.2", "four\n"),
    ];
    assert_eq!(files(folder.path()), named(&expected));
    assert_eq!(stream.failed_lines(), 0);
}

#[test]
fn what_a_file_has_already_counts_against_its_size() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("audit.log"), "before\n").expect("written");
    let (_, mut writer) = open(&in_file(folder.path(), 8, 2));
    writer.write_all(b"after\n").expect("never fails");
    assert_eq!(files(folder.path()), named(&[("audit.log", "after\n"), ("audit.log.1", "before\n")]));
}

#[test]
fn a_file_that_cannot_be_rotated_grows_and_loses_no_line() {
    let folder = tempfile::tempdir().expect("folder");
    // A folder that is not empty cannot be replaced by a file.
    fs::create_dir_all(folder.path().join("audit.log.1/x")).expect("folder");
    let (stream, mut writer) = open(&in_file(folder.path(), 8, 1));
    for line in ["one\n", "two\n", "three\n"] {
        writer.write_all(line.as_bytes()).expect("never fails");
    }
    assert_eq!(fs::read_to_string(folder.path().join("audit.log")).expect("text"), "one\ntwo\nthree\n");
    assert_eq!(stream.failed_lines(), 0);
}

#[test]
fn a_renamed_file_is_left_when_the_stream_is_opened_again() {
    let folder = tempfile::tempdir().expect("folder");
    let (stream, mut writer) = open(&in_file(folder.path(), 0, 1));
    writer.write_all(b"one\n").expect("never fails");
    fs::rename(folder.path().join("audit.log"), folder.path().join("audit.log.old")).expect("renamed");
    writer.write_all(b"two\n").expect("never fails");
    stream.reopen().expect("reopened");
    writer.write_all(b"three\n").expect("never fails");
    assert_eq!(files(folder.path()), named(&[("audit.log", "three\n"), ("audit.log.old", "one\ntwo\n")]));
}

#[test]
fn only_the_owner_reads_a_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("folder");
    let _stream = open(&in_file(folder.path(), 0, 1));
    let mode = fs::metadata(folder.path().join("audit.log")).expect("file").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn a_command_appends_without_rotating() {
    let folder = tempfile::tempdir().expect("folder");
    let config = in_file(folder.path(), 8, 2);
    let stream = AuditStream::open(&config, Path::new("data"), Rotation::Never).expect("opened").expect("a stream");
    for _ in 0..3 {
        AuditWriter(stream.clone()).write_all(b"a command\n").expect("never fails");
    }
    assert_eq!(files(folder.path()), named(&[("audit.log", "a command\na command\na command\n")]));
}

#[test]
fn a_stream_that_cannot_be_opened_names_its_setting() {
    let missing = Path::new("/nonexistent/folder");
    let file = AuditConfig { output: AuditOutput::File, file: missing.join("a"), ..AuditConfig::default() };
    let syslog =
        AuditConfig { output: AuditOutput::Syslog, syslog_socket: missing.join("s"), ..AuditConfig::default() };
    for (config, key) in [(file, "audit.file: /nonexistent/"), (syslog, "audit.syslog_socket: /nonexistent/")] {
        let fault = AuditStream::open(&config, Path::new("data"), Rotation::BySize).expect_err("refused");
        assert!(fault.starts_with(key), "{fault}");
    }
    let log = AuditStream::open(&AuditConfig::default(), missing, Rotation::BySize).expect("nothing to open");
    assert!(log.is_none());
}

#[test]
fn syslog_gets_records_also_after_its_restart_and_lost_ones_are_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("log");
    let config = AuditConfig { output: AuditOutput::Syslog, syslog_socket: path.clone(), ..AuditConfig::default() };
    let daemon = UnixDatagram::bind(&path).expect("bound");
    let (stream, mut writer) = open(&config);
    let receive = |daemon: &UnixDatagram| {
        let mut buffer = [0; 256];
        let length = daemon.recv(&mut buffer).expect("a record");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    };
    let expected = format!("<86>deskgate[{}]: {{\"event\":\"logout\"}}", std::process::id());
    writer.write_all(b"{\"event\":\"logout\"}\n").expect("never fails");
    assert_eq!(receive(&daemon), expected);

    drop(daemon);
    fs::remove_file(&path).expect("removed");
    writer.write_all(b"lost\n").expect("never fails");
    assert_eq!(stream.failed_lines(), 1);
    let daemon = UnixDatagram::bind(&path).expect("bound");
    writer.write_all(b"{\"event\":\"logout\"}\n").expect("never fails");
    assert_eq!(receive(&daemon), expected);
    assert_eq!(stream.failed_lines(), 1);
}

#[test]
fn syslog_may_have_a_stream_socket() {
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("log");
    let listener = UnixListener::bind(&path).expect("bound");
    let config = AuditConfig { output: AuditOutput::Syslog, syslog_socket: path, ..AuditConfig::default() };
    let (stream, mut writer) = open(&config);
    writer.write_all(b"record\n").expect("never fails");
    drop((stream, writer));
    let mut received = String::new();
    listener.accept().expect("a connection").0.read_to_string(&mut received).expect("text");
    assert_eq!(received, format!("<86>deskgate[{}]: record\0", std::process::id()));
}
