use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use tracing_appender::non_blocking::NonBlockingBuilder;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// A reader that takes a line only when it is allowed to.
struct SlowReader(Receiver<()>);

impl Write for SlowReader {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct LogInMemory(Arc<Mutex<Vec<u8>>>);

impl Write for LogInMemory {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lines").write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogInMemory {
    type Writer = LogInMemory;

    fn make_writer(&'a self) -> LogInMemory {
        self.clone()
    }
}

impl LogInMemory {
    fn reports(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().expect("lines").clone()).expect("text");
        text.lines().filter(|line| line.contains("log lines were dropped")).map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_lines_are_counted_and_reported_once() {
    let (_allow, allowed) = std::sync::mpsc::channel();
    let (mut writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(2).lossy(true).finish(SlowReader(allowed));
    let streams = LogStreams { lines: Some(writer.error_counter()), audit: None };
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let lines = LogInMemory::default();
    let log = tracing_subscriber::fmt().with_writer(lines.clone()).json().finish();
    let _log = tracing::subscriber::set_default(log);
    let watch = tokio::spawn(streams.clone().watch(metrics.clone()));
    tokio::time::sleep(INTERVAL * 2).await;
    assert_eq!(lines.reports(), Vec::<String>::new());

    for _ in 0..10 {
        writer.write_all(b"line\n").expect("never blocks");
    }
    let dropped = streams.dropped_lines();
    assert!(dropped >= 7, "one line is being written and two wait; {dropped} of 10 were dropped");
    tokio::time::sleep(INTERVAL * 3).await;
    let page = String::from_utf8(metrics.render()).expect("text");
    assert!(page.contains(&format!("\ndeskgate_log_lines_dropped_total {dropped}\n")), "{page}");
    let reports = lines.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains(&format!("\"lines\":{dropped}")), "{reports:?}");
    watch.abort();
    // Dropping the guard would wait for the reader.
    std::mem::forget(guard);
}
