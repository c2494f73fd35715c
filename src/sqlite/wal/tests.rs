#![expect(clippy::disallowed_methods, reason = "writes a log for the tests")]

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::*;

const PAGE_BYTES: usize = 4096;

const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;

/// A log of several commits, as SQLite writes it.
async fn log() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("numbers.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut connection = options.journal_mode(SqliteJournalMode::Wal).connect().await.expect("a connection");
    sqlx::raw_sql("CREATE TABLE numbers (n INTEGER PRIMARY KEY)").execute(&mut connection).await.expect("a table");
    for number in 0..5 {
        let insert = sqlx::query("INSERT INTO numbers VALUES ($1)").bind(number);
        insert.execute(&mut connection).await.expect("a row");
    }
    let log = std::fs::read(wal_of(&path)).expect("a log");
    assert_eq!((log.len() - HEADER_BYTES) % FRAME_BYTES, 0);
    log
}

fn state(log: &[u8]) -> LogState {
    inspect(log).expect("bytes")
}

#[tokio::test]
async fn log_of_sqlite_is_readable() {
    assert_eq!(state(&log().await), LogState::Readable);
}

#[tokio::test]
async fn log_without_a_header_holds_no_commit() {
    for empty in [&[][..], &[0; 20], &[0; HEADER_BYTES], &[0; 10_000]] {
        assert_eq!(state(empty), LogState::Readable);
    }
}

#[tokio::test]
async fn unfinished_commit_at_the_end_is_readable() {
    let log = log().await;
    for length in [log.len() - 1, log.len() - PAGE_BYTES, log.len() - FRAME_BYTES] {
        assert_eq!(state(&log[..length]), LogState::Readable);
    }
    let mut torn = log.clone();
    let last = torn.len() - 10;
    torn[last] ^= 1;
    assert_eq!(state(&torn), LogState::Readable);
}

#[tokio::test]
async fn damaged_header_is_found() {
    let log = log().await;
    for byte in 0..HEADER_BYTES {
        let mut damaged = log.clone();
        damaged[byte] ^= 0x40;
        assert_eq!(state(&damaged), LogState::BadHeader, "byte {byte}");
    }
}

#[tokio::test]
async fn damage_before_an_acknowledged_commit_is_found() {
    let log = log().await;
    let frames = (log.len() - HEADER_BYTES) / FRAME_BYTES;
    for frame in 0..frames - 2 {
        let mut damaged = log.clone();
        damaged[HEADER_BYTES + frame * FRAME_BYTES + FRAME_HEADER_BYTES + 7] ^= 1;
        assert_eq!(state(&damaged), LogState::LostCommits, "frame {frame}");
    }
}

#[tokio::test]
async fn frames_of_an_earlier_log_are_ignored() {
    let mut log = log().await;
    let salts = HEADER_BYTES + 2 * FRAME_BYTES + 8;
    for frame in log[salts..].chunks_mut(FRAME_BYTES) {
        frame[0] ^= 1;
    }
    assert_eq!(state(&log), LogState::Readable);
}
