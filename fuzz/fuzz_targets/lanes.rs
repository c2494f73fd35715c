#![no_main]
//! Both lanes of HTTP/1.1: the client gets the same from both, and the upstream sees the same.
//!
//! Two gateways run in this process, one with `server.fast_lane` and one without. Each gets the same bytes on a new connection, and
//! behind them a last request, which ends the connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use deskgate::app::{App, Inherited, LogStreams, RuleSource, Sources};
use deskgate::config::load_text;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const LAST_REQUEST: &[u8] = b"GET /public/last HTTP/1.1\r\nHost: desk.example\r\nConnection: close\r\n\r\n";

/// How long a connection may take to end. Longer than the limits of the gateways.
const LONGEST: Duration = Duration::from_secs(10);

/// How often a difference must be seen: one that depends on the time between two packets is none.
const REPETITIONS: usize = 3;

const RULES: &str = r#"
[[rule]]
name = "public"
path = "/public/{*rest}"
upstream = "desk"
public = true

[[rule]]
name = "signed in"
path = "/api/desk/{*rest}"
upstream = "desk"
signed_in = true
"#;

/// What a request was, its lines in an order of their own.
type Lines = Vec<String>;

/// A gateway and what its upstream has seen.
struct Lane {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<(Lines, Vec<u8>)>>>,
    _files: TempDir,
    _app: App,
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

static LANES: LazyLock<[Lane; 2]> =
    LazyLock::new(|| RUNTIME.block_on(async { [start(true).await, start(false).await] }));

fuzz_target!(|bytes: &[u8]| {
    let [fast, proxy] = &*LANES;
    let compare = || RUNTIME.block_on(async { tokio::join!(exchange(fast, bytes), exchange(proxy, bytes)) });
    let mut observed = compare();
    for _ in 1..REPETITIONS {
        if observed.0 == observed.1 {
            return;
        }
        observed = compare();
    }
    assert_eq!(observed.0, observed.1, "{}", bytes.escape_ascii());
});

async fn start(fast_lane: bool) -> Lane {
    let files = tempfile::tempdir().expect("a folder");
    let rules = files.path().join("rules");
    std::fs::create_dir(&rules).expect("a folder");
    std::fs::write(rules.join("rules.toml"), RULES).expect("a file");
    let upstream = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let settings = format!(
        r#"
        [server]
        listen = ["127.0.0.1:0"]
        admin_listen = "127.0.0.1:0"
        public_url = "http://127.0.0.1:0"
        hosts = ["desk.example"]
        data_dir = {data:?}
        development = true
        fast_lane = {fast_lane}
        [platform]
        kind = "simulated"
        simulated_listen = "127.0.0.1:0"
        [clients]
        h5 = "http://127.0.0.1:0/h5/"
        itagent = "http://127.0.0.1:0/itagent/"
        itadmin = "http://127.0.0.1:0/itadmin/"
        [limits]
        head_deadline = "300ms"
        upload_deadline = "300ms"
        idle = "1s"
        invalid_tokens = 1000000
        [rules]
        dir = {rules:?}
        [upstreams.desk]
        addresses = ["{upstream}"]
        "#,
        data = files.path().join("data"),
        upstream = upstream.local_addr().expect("an address"),
    );
    let config = load_text("fuzz", &settings, &[]).expect("valid settings");
    let sources = Sources { config: None, rules: RuleSource::Folder(rules), log: LogStreams::default() };
    let app = App::start(config, sources, Inherited::default()).await.expect("a gateway");
    let address = app.listen_list().parse().expect("an address");
    let seen = Arc::<Mutex<Vec<_>>>::default();
    tokio::spawn(serve(upstream, seen.clone()));
    let lane = Lane { address, seen, _files: files, _app: app };
    let (_, seen) = exchange(&lane, b"").await;
    assert_eq!(seen.len(), 1, "the upstream gets the last request");
    lane
}

/// What the client got, and what the upstream has seen.
async fn exchange(lane: &Lane, bytes: &[u8]) -> (Lines, Vec<(Lines, Vec<u8>)>) {
    lane.seen.lock().expect("not poisoned").clear();
    let mut connection = TcpStream::connect(lane.address).await.expect("a connection");
    let mut answers = Vec::new();
    // A gateway that refuses the beginning may close the connection before it has read the rest.
    let exchanging = async {
        let _ = connection.write_all(bytes).await;
        let _ = connection.write_all(LAST_REQUEST).await;
        let _ = connection.read_to_end(&mut answers).await;
    };
    tokio::time::timeout(LONGEST, exchanging).await.expect("the connection ends");
    (lines(&answers), std::mem::take(&mut *lane.seen.lock().expect("not poisoned")))
}

/// The lines of heads and bodies without what differs between any two requests, in an order of their own: the lanes may send header
/// lines in different orders.
fn lines(bytes: &[u8]) -> Lines {
    let text = bytes.escape_ascii().to_string().to_ascii_lowercase();
    let mut lines: Lines = text.split("\\r\\n").map(without_request_id).filter(|line| !is_varying(line)).collect();
    lines.sort();
    lines
}

fn is_varying(line: &str) -> bool {
    ["date:", "x-request-id:", "traceparent:"].iter().any(|name| line.starts_with(name))
}

/// The body of a refusal ends with the id of its request.
fn without_request_id(line: &str) -> String {
    line.split("request_id").next().unwrap_or_default().to_owned()
}

/// Answers requests and notes those that came as a whole.
async fn serve(listener: TcpListener, seen: Arc<Mutex<Vec<(Lines, Vec<u8>)>>>) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(answer(connection, seen.clone()));
    }
}

async fn answer(mut connection: TcpStream, seen: Arc<Mutex<Vec<(Lines, Vec<u8>)>>>) {
    let mut received = Vec::new();
    loop {
        let Some((head, length)) = read(&mut connection, &mut received, read_head).await else { return };
        let head = received.drain(..head).collect::<Vec<_>>();
        let mut read_body = |bytes: &[u8]| match length {
            BodyLength::Known(length) => (bytes.len() >= length).then(|| (length, bytes[..length].to_vec())),
            BodyLength::Chunked => read_chunks(bytes),
        };
        let Some((end, body)) = read(&mut connection, &mut received, &mut read_body).await else { return };
        received.drain(..end);
        let response: &[u8] = match head.starts_with(b"HEAD ") {
            true => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            false => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        };
        seen.lock().expect("not poisoned").push((lines(&head), body));
        if connection.write_all(response).await.is_err() {
            return;
        }
    }
}

/// Reads until `parse` has found something. None if the connection ends before.
fn read<'a, T>(
    connection: &'a mut TcpStream,
    received: &'a mut Vec<u8>,
    mut parse: impl FnMut(&[u8]) -> Option<T> + 'a,
) -> impl Future<Output = Option<T>> + 'a {
    async move {
        loop {
            if let Some(found) = parse(received) {
                return Some(found);
            }
            if connection.read_buf(received).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

enum BodyLength {
    Known(usize),
    Chunked,
}

/// The length of a head, and what it announces.
fn read_head(bytes: &[u8]) -> Option<(usize, BodyLength)> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes).expect("a valid head from the gateway") {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return None,
    };
    let value = |name: &str| {
        let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        Some(std::str::from_utf8(header.value).expect("text"))
    };
    let body = match (value("transfer-encoding"), value("content-length")) {
        (Some(_), _) => BodyLength::Chunked,
        (None, announced) => BodyLength::Known(announced.unwrap_or("0").parse().expect("a length")),
    };
    Some((length, body))
}

/// The length of a chunked body, and its data.
fn read_chunks(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (mut at, mut data) = (0, Vec::new());
    loop {
        let (size_line, size) = match httparse::parse_chunk_size(&bytes[at..]).expect("a valid chunk from the gateway")
        {
            httparse::Status::Complete(chunk) => chunk,
            httparse::Status::Partial => return None,
        };
        let (start, size) = (at + size_line, usize::try_from(size).expect("a size"));
        data.extend_from_slice(bytes.get(start..start + size)?);
        at = start + size + 2;
        if bytes.len() < at {
            return None;
        }
        if size == 0 {
            return Some((at, data));
        }
    }
}
