use super::*;

async fn open(folder: &Path) -> SqliteFile {
    SqliteFile::open(&folder.join("numbers.db"), |connection| create(connection).boxed()).await.expect("a file")
}

async fn create(connection: &mut SqliteConnection) -> Result<(), SqliteFileError> {
    let created = sqlx::raw_sql("CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY)").execute(connection).await;
    created.map(|_| ()).map_err(unavailable)
}

fn insert(number: i64) -> Query<'static, Sqlite, SqliteArguments> {
    sqlx::query("INSERT INTO numbers VALUES ($1)").bind(number)
}

async fn count(file: &SqliteFile) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM numbers").fetch_one(file.readers()).await.expect("a count")
}

/// Holds the file's lock, as a second process would.
async fn lock(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join("numbers.db"));
    let mut other = options.connect().await.expect("a connection");
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.expect("the lock");
    other
}

#[tokio::test]
async fn changes_of_one_batch_succeed_and_fail_on_their_own() {
    let folder = tempfile::tempdir().expect("folder");
    let file = open(folder.path()).await;
    let results = futures::future::join_all([1, 2, 1, 3].map(|number| file.execute(insert(number)))).await;
    let done: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, true, false, true]);
    assert_eq!(count(&file).await, 3);
}

#[tokio::test]
async fn change_that_fails_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let file = open(folder.path()).await;
    let failed = file.write(insert_twice).await;
    assert!(failed.is_err());
    assert_eq!(count(&file).await, 0);
}

fn insert_twice(connection: &mut SqliteConnection) -> BoxFuture<'_, Result<(), sqlx::Error>> {
    async move {
        insert(1).execute(&mut *connection).await?;
        insert(1).execute(&mut *connection).await.map(|_| ())
    }
    .boxed()
}

#[tokio::test]
async fn full_queue_refuses_at_once() {
    let folder = tempfile::tempdir().expect("folder");
    let file = std::sync::Arc::new(open(folder.path()).await);
    let mut other = lock(folder.path()).await;
    let changes = (0..writer::QUEUE_CAPACITY + 2 * writer::MAX_BATCH).map(|number| {
        let file = file.clone();
        tokio::spawn(async move { file.execute(insert(i64::try_from(number).expect("a number"))).await })
    });
    let changes: Vec<_> = changes.collect();
    // Those that do not fit are refused while the others wait for the lock.
    let refused = async {
        while !changes.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), refused).await.expect("a refusal");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("the lock");
    let mut done = 0;
    for change in changes {
        done += usize::from(change.await.expect("a task").is_ok());
    }
    assert!(done >= writer::QUEUE_CAPACITY, "{done} were written");
    assert_eq!(usize::try_from(count(&file).await).expect("a count"), done);
}

#[tokio::test]
async fn dead_writer_is_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let file = open(folder.path()).await;
    assert!(futures::poll!(std::pin::pin!(file.writer_ended())).is_pending());
    let failed: Result<(), _> = file.write(|_| async { panic!("a bug in a change") }.boxed()).await;
    assert!(failed.is_err());
    tokio::time::timeout(Duration::from_secs(5), file.writer_ended()).await.expect("an end");
}

#[tokio::test]
async fn closed_file_is_complete_and_refuses_writes() {
    let folder = tempfile::tempdir().expect("folder");
    let file = open(folder.path()).await;
    file.execute(insert(1)).await.expect("a change");
    file.close().await;
    assert!(file.execute(insert(2)).await.is_err());
    assert!(!folder.path().join("numbers.db-wal").exists());
}

#[tokio::test]
async fn copy_holds_what_was_acknowledged_and_replaces_no_file() {
    let folder = tempfile::tempdir().expect("folder");
    let file = open(folder.path()).await;
    file.execute(insert(1)).await.expect("a change");
    let (from, to) = (folder.path().join("numbers.db"), folder.path().join("copy.db"));
    copy(&from, &to).await.expect("a copy");
    assert!(copy(&from, &to).await.is_err());
    let options = SqliteConnectOptions::new().filename(&to);
    let mut copied = options.connect().await.expect("the copy");
    let numbers: i64 =
        sqlx::query_scalar("SELECT count(*) FROM numbers").fetch_one(&mut copied).await.expect("a count");
    assert_eq!(numbers, 1);
}

/// Overwrites the middle of a file that holds many numbers.
fn damage(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("the file");
    let middle = file.metadata().expect("a size").len() / 2 / 4096 * 4096;
    file.write_all_at(&[0xff; 4096], middle).expect("damage");
}

async fn closed_file(folder: &Path) -> std::path::PathBuf {
    const MANY: &str =
        "INSERT INTO numbers WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 9000)
         SELECT n FROM n";
    let file = open(folder).await;
    file.execute(sqlx::query(MANY)).await.expect("numbers");
    file.close().await;
    folder.join("numbers.db")
}

async fn try_open(folder: &Path) -> Result<SqliteFile, SqliteFileError> {
    SqliteFile::open(&folder.join("numbers.db"), |connection| create(connection).boxed()).await
}

#[tokio::test]
async fn file_that_was_changed_after_a_clean_stop_is_examined_first() {
    let folder = tempfile::tempdir().expect("folder");
    let path = closed_file(folder.path()).await;
    assert!(checksum::matches(&path), "a clean stop leaves a checksum");
    damage(&path);
    assert!(!checksum::matches(&path));
    assert!(matches!(try_open(folder.path()).await, Err(SqliteFileError::Damaged(_))));
}

#[tokio::test]
async fn damage_from_before_a_clean_stop_is_found_after_the_start_and_refused_from_then_on() {
    let folder = tempfile::tempdir().expect("folder");
    let path = closed_file(folder.path()).await;
    damage(&path);
    checksum::write(&path).expect("a checksum");
    let file = try_open(folder.path()).await.expect("a file as a clean stop left it");
    tokio::time::timeout(Duration::from_secs(10), file.writer_ended()).await.expect("an end");
    drop(file);
    assert!(matches!(try_open(folder.path()).await, Err(SqliteFileError::Damaged(_))));
}

#[tokio::test]
async fn file_of_a_process_that_was_killed_has_no_valid_checksum() {
    let folder = tempfile::tempdir().expect("folder");
    let path = closed_file(folder.path()).await;
    // More than once: the file is being examined while it is closed.
    for number in 10_000..10_020 {
        let file = open(folder.path()).await;
        file.execute(insert(number)).await.expect("a change");
        assert!(!checksum::matches(&path), "the write-ahead log holds a change");
        file.close().await;
        assert!(checksum::matches(&path));
    }
}
