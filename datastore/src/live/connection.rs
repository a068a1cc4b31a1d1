//! Where the API server is, and a client for it.
//!
//! The client never repeats a write by itself: a repeated write that had landed comes back as a conflict, and a second address
//! would be handed out. Readings are repeated, a few times (D-80).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use chrono::TimeDelta;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use ipam::clock::Time;
use ipam::mem::Verb;
use ipam::{Clock as _, SystemClock};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::timeout;

use super::answer::{Answer, Purpose};
use super::traffic::Traffic;

/// How long a reading of one object, or a write, may take.
const ONE: Duration = Duration::from_secs(10);
/// How long a list may take.
const MANY: Duration = Duration::from_secs(60);
/// At most this often credentials are read again.
const RENEWAL: TimeDelta = TimeDelta::seconds(5);
/// How often a reading is tried again.
const AGAIN: usize = 3;

/// How the server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A kubeconfig file; `None`: `KUBECONFIG`, `~/.kube/config`, or the pod's own account.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; `None`: the current one.
    pub context: Option<String>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("reaching the API server: {0}")]
pub struct ConnectError(String);

impl ConnectError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

async fn client(access: &Access) -> Result<Client, ConnectError> {
    let wrong = |e: &dyn std::error::Error| ConnectError::new(ipam::release::chain(e));
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match (&access.kubeconfig, &access.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(|e| wrong(&e))?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|e| wrong(&e))?,
        (None, None) => Config::infer().await.map_err(|e| wrong(&e))?,
    };
    config.default_retry = false;
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).map_err(|e| wrong(&e))
}

type Requests = BTreeMap<(Verb, &'static str), u64>;

/// A client that is made anew when its credentials are no longer accepted, and counts its requests.
#[derive(Clone)]
pub struct Connection {
    access: Access,
    client: Arc<Mutex<Client>>,
    /// Only one makes it anew at a time; when that was done last.
    renewing: Arc<async_lock::Mutex<Option<Time>>>,
    requests: Arc<Mutex<Requests>>,
    traffic: Arc<Traffic>,
    /// Told of each request.
    pulse: Option<Arc<dyn Fn() + Send + Sync>>,
}

fn verb(purpose: Purpose) -> Verb {
    match purpose {
        Purpose::Get => Verb::Get,
        Purpose::List => Verb::List,
        Purpose::Create => Verb::Create,
        Purpose::Update => Verb::Update,
        Purpose::Delete => Verb::Delete,
    }
}

impl Connection {
    /// Prepares a client; nothing is asked of the server yet.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub async fn new(access: Access) -> Result<Self, ConnectError> {
        let client = Arc::new(Mutex::new(client(&access).await?));
        Ok(Self { access, client, renewing: Arc::default(), requests: Arc::default(), traffic: Arc::default(), pulse: None })
    }

    /// The same connection; `pulse` is told of each request that goes through this one.
    pub fn with_pulse(self, pulse: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { pulse: Some(pulse), ..self }
    }

    /// Numbers of what went through all clones of this one.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The client of now.
    pub fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often was asked what, by verb and kind; repeated readings count again.
    pub fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, purpose: Purpose, kind: &'static str) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry((verb(purpose), kind)).or_default() += 1;
        if let Some(pulse) = &self.pulse {
            pulse();
        }
    }

    /// A reading: again when the server is busy or not there, and once more with new credentials.
    pub(super) async fn read(&self, purpose: Purpose, kind: &'static str, path: &str) -> Answer {
        let once = || async {
            self.count(purpose, kind);
            let limit = if purpose == Purpose::List { MANY } else { ONE };
            let answer = self.timed(purpose, kind, self.send(Method::GET, path, Vec::new(), limit)).await;
            if answer.passing() { Err(answer) } else { Ok(answer) }
        };
        let pauses = ExponentialBuilder::default().with_min_delay(Duration::from_millis(100)).with_max_times(AGAIN).with_jitter();
        // Never less than the server asked for, and never longer than a reading may take.
        let adjust = |failed: &Answer, pause: Option<Duration>| Some(pause?.max(failed.pause().unwrap_or_default()).min(ONE));
        let answer = once.retry(pauses).adjust(adjust).await.unwrap_or_else(|e| e);
        if answer.unauthorized() && self.renew().await {
            return once().await.unwrap_or_else(|e| e);
        }
        answer
    }

    /// A write, once.
    pub(super) async fn write(&self, purpose: Purpose, kind: &'static str, path: &str, body: Vec<u8>) -> Answer {
        self.count(purpose, kind);
        let method = match purpose {
            Purpose::Create => Method::POST,
            Purpose::Update => Method::PUT,
            _ => Method::DELETE,
        };
        let answer = self.timed(purpose, kind, self.send(method, path, body, ONE)).await;
        if answer.unauthorized() {
            self.renew().await;
        }
        answer
    }

    /// Counts a request with its answer.
    async fn timed(&self, purpose: Purpose, kind: &'static str, send: impl Future<Output = Answer>) -> Answer {
        let start = SystemClock.now();
        let answer = send.await;
        let seconds = (SystemClock.now() - start).to_std().unwrap_or_default().as_secs_f64();
        self.traffic.request(verb(purpose).word(), kind, answer.code(), Some(seconds));
        answer
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>, limit: Duration) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json").body(Body::from(body));
        let request = match request {
            Ok(request) => request,
            Err(e) => return Answer::Nothing(e.to_string()),
        };
        let client = self.client();
        let whole = async {
            let answer = client.send(request).await.map_err(|e| ipam::release::chain(&e))?;
            let code = answer.status();
            let later = answer.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()).map(str::to_owned);
            if let Some(date) = answer.headers().get(header::DATE).and_then(|v| v.to_str().ok()) {
                self.traffic.date(date, SystemClock.now());
            }
            let body = answer.into_body().collect().await.map_err(|e| ipam::release::chain(&e))?;
            Ok::<_, String>(Answer::of(code, later.as_deref(), body.to_bytes().to_vec()))
        };
        match timeout(limit, whole).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => Answer::Nothing(why),
            Err(_) => Answer::Nothing(format!("no answer within {} s", limit.as_secs())),
        }
    }

    /// Makes the client anew from its source: a token in a file may be a new one. Whether that could be done.
    pub(super) async fn renew(&self) -> bool {
        let mut last = self.renewing.lock().await;
        let now = SystemClock.now();
        if last.is_some_and(|last| now - last < RENEWAL) {
            // Somebody just did.
            return true;
        }
        *last = Some(now);
        match client(&self.access).await {
            Ok(new) => {
                *self.client.lock().unwrap_or_else(PoisonError::into_inner) = new;
                true
            }
            Err(e) => {
                tracing::warn!(error = %e, "credentials cannot be renewed");
                false
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("access", &self.access).finish_non_exhaustive()
    }
}
