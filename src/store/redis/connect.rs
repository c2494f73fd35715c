//! Opens connections to the primary of a server, a Sentinel-managed pair or a member of a cluster. Keeping them open is
//! left to `link`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, ServerErrorKind, TlsCertificates, Value,
};
use tokio::sync::mpsc;

use crate::config::{RedisHost, RedisTls};
use crate::domain::secret::Secret;

mod sentinels;

/// How long a connection may take, with its TLS handshake and sign-in: several round trips.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// What a connection to a replica fails with.
pub(super) const REPLICA: ErrorKind = ErrorKind::Server(ServerErrorKind::ReadOnly);

/// Which process answers: a server that restarts, and another one that takes its place, have another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RunId(Arc<str>);

impl RunId {
    /// The process that has answered `INFO server`.
    pub(super) fn of(info: &str) -> Option<Self> {
        field(info, "run_id").map(|id| Self(id.into()))
    }
}

/// A range of a cluster's slots and the primary that has them.
#[derive(Debug)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: RedisHost,
}

/// How to sign in at every server.
pub(super) struct ServerAccess {
    pub(super) tls: RedisTls,
    /// The certificates that sign those of the servers, PEM; `None`: the system's.
    pub(super) authorities: Option<Vec<u8>>,
    pub(super) username: Option<String>,
    pub(super) password: ServerPassword,
    pub(super) database: i64,
}

/// The password of the servers.
pub(super) enum ServerPassword {
    None,
    Known(Secret<String>),
    /// Read for each connection: a password that is changed needs no restart.
    File(PathBuf),
}

impl ServerPassword {
    /// The password of the file, or of the URL if there is no file.
    pub(super) fn new(password: Option<Secret<String>>, file: &Path) -> Self {
        match password {
            _ if !file.as_os_str().is_empty() => Self::File(file.to_owned()),
            Some(password) => Self::Known(password),
            None => Self::None,
        }
    }

    async fn read(&self) -> std::io::Result<Option<Secret<String>>> {
        match self {
            Self::None => Ok(None),
            Self::Known(password) => Ok(Some(password.clone())),
            Self::File(file) => {
                let text = tokio::fs::read_to_string(file).await?;
                Ok(Some(Secret::new(text.trim().to_owned())))
            }
        }
    }
}

/// Where the primary is.
#[derive(Debug, Clone)]
pub(super) enum PrimaryAddress {
    /// At this address.
    Host(RedisHost),
    /// On this machine.
    Unix(PathBuf),
    /// Where the Sentinels say, each time a connection is opened.
    Sentinel { hosts: Arc<[RedisHost]>, name: Arc<str> },
}

/// A connection to a primary.
pub(super) struct OpenConnection {
    pub(super) connection: MultiplexedConnection,
    /// Has an event when the connection is lost.
    pub(super) events: mpsc::UnboundedReceiver<PushInfo>,
    /// The server's process; `None` if it may not be asked for it.
    pub(super) run_id: Option<RunId>,
    /// Where it is; `None` on this machine.
    pub(super) host: Option<RedisHost>,
}

/// Opens connections to one primary.
#[derive(Clone)]
pub(super) struct Connector {
    access: Arc<ServerAccess>,
    address: PrimaryAddress,
}

impl Connector {
    pub(super) fn new(access: Arc<ServerAccess>, address: PrimaryAddress) -> Self {
        if access.tls == RedisTls::On {
            // Fails if one is installed already: it is used then.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        Self { access, address }
    }

    /// The same servers' access for another member of the cluster.
    pub(super) fn to(&self, host: RedisHost) -> Self {
        Self { access: self.access.clone(), address: PrimaryAddress::Host(host) }
    }

    /// Opens a connection and checks that a primary answers: a replica would accept reads and be behind.
    pub(super) async fn open(&self) -> Result<OpenConnection, RedisError> {
        let open = async {
            let (address, host) = self.resolve().await?;
            let (mut connection, events) = self.dial(address, Credentials::Sent).await?;
            let run_id = check_primary(&mut connection).await?;
            Ok(OpenConnection { connection, events, run_id, host })
        };
        within(CONNECT_LIMIT, open).await
    }

    async fn resolve(&self) -> Result<(ConnectionAddr, Option<RedisHost>), RedisError> {
        let host = match &self.address {
            PrimaryAddress::Unix(path) => return Ok((ConnectionAddr::Unix(path.clone()), None)),
            PrimaryAddress::Host(host) => host.clone(),
            PrimaryAddress::Sentinel { hosts, name } => self.ask_sentinels(hosts, name).await?,
        };
        Ok((self.tcp(&host), Some(host)))
    }

    fn tcp(&self, host: &RedisHost) -> ConnectionAddr {
        let RedisHost { name: host, port } = host.clone();
        match self.access.tls {
            RedisTls::Off => ConnectionAddr::Tcp(host, port),
            RedisTls::On => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        }
    }

    async fn dial(
        &self,
        address: ConnectionAddr,
        credentials: Credentials,
    ) -> Result<(MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>), RedisError> {
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if credentials == Credentials::Sent {
            settings = settings.set_db(self.access.database);
            if let Some(username) = &self.access.username {
                settings = settings.set_username(username);
            }
            if let Some(password) = self.access.password.read().await? {
                settings = settings.set_password(password.reveal());
            }
        }
        let keepalive =
            socket2::TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        let tcp = ::redis::io::tcp::TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let encrypted = matches!(address, ConnectionAddr::TcpTls { .. });
        let info = address.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = match (&self.access.authorities, encrypted) {
            (Some(authorities), true) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(authorities.clone()) };
                Client::build_with_tls(info, certificates)?
            }
            _ => Client::open(info)?,
        };
        let (sender, events) = mpsc::unbounded_channel();
        // Calls are bounded by their callers: the limits of the crate would start a timer for each as well.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(sender);
        Ok((client.get_multiplexed_async_connection_with_config(&config).await?, events))
    }
}

/// Whether a connection signs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Credentials {
    Sent,
    Withheld,
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

/// Refuses a replica. A user who may ask neither for the role nor for the process is let through: changes fail on a replica.
pub(super) async fn check_primary(connection: &mut MultiplexedConnection) -> Result<Option<RunId>, RedisError> {
    let mut questions = ::redis::pipe();
    questions.cmd("ROLE").cmd("INFO").arg("server");
    let answers = connection.send_packed_commands(&questions, 0, 2).await?;
    let [role, info] = <[Value; 2]>::try_from(answers).map_err(|_| (ErrorKind::UnexpectedReturnType, "two answers"))?;
    match permitted(role)? {
        Value::Nil => {}
        Value::Array(parts) => {
            let role = parts.into_iter().next().unwrap_or(Value::Nil);
            if ::redis::from_redis_value::<String>(role)? != "master" {
                return Err((REPLICA, "the server is a replica").into());
            }
        }
        _ => return Err((ErrorKind::UnexpectedReturnType, "no role").into()),
    }
    let info: Option<String> = ::redis::from_redis_value(permitted(info)?)?;
    Ok(info.as_deref().and_then(RunId::of))
}

/// The answer to a question that the user may not be permitted to ask; nil then.
fn permitted(answer: Value) -> Result<Value, RedisError> {
    match answer.extract_error() {
        Err(error) if error.code() == Some("NOPERM") => Ok(Value::Nil),
        answer => answer,
    }
}

/// The value of a field of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

impl Connector {
    /// The slots of a cluster, by the first of these members that knows them. One that lost sight of the majority does not.
    pub(super) async fn cluster_slots(&self, hosts: &[RedisHost]) -> Result<Vec<SlotRange>, RedisError> {
        let asked = hosts.iter().map(|host| Box::pin(within(CONNECT_LIMIT, self.ask_member(host))));
        futures::future::select_ok(asked).await.map(|(slots, _)| slots)
    }

    async fn ask_member(&self, host: &RedisHost) -> Result<Vec<SlotRange>, RedisError> {
        let (mut connection, _events) = self.dial(self.tcp(host), Credentials::Sent).await?;
        let mut questions = ::redis::pipe();
        questions.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let (info, ranges): (String, Vec<Vec<Value>>) = questions.query_async(&mut connection).await?;
        if field(&info, "cluster_state") != Some("ok") {
            return Err((ErrorKind::Client, "the member sees no working cluster").into());
        }
        Ok(ranges.into_iter().filter_map(|range| slot_range(range, host)).collect())
    }
}

/// One range of `CLUSTER SLOTS`: first and last slot, the primary, its replicas. A member that does not know its own
/// address leaves it out: it is the one that was asked.
fn slot_range(range: Vec<Value>, asked: &RedisHost) -> Option<SlotRange> {
    let mut parts = range.into_iter();
    let first = ::redis::from_redis_value(parts.next()?).ok()?;
    let last = ::redis::from_redis_value(parts.next()?).ok()?;
    let mut primary = ::redis::from_redis_value::<Vec<Value>>(parts.next()?).ok()?.into_iter();
    let name: Option<String> = ::redis::from_redis_value(primary.next()?).ok()?;
    let port = ::redis::from_redis_value(primary.next()?).ok()?;
    let name = name.filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.name.clone());
    Some(SlotRange { first, last, primary: RedisHost { name, port } })
}
