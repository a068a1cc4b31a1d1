//! A proxy in front of an API server that spoils answers: for what a network does to a client.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use ipam_datastore::live::{Access, Connection};
use ipam_datastore::{Group, KubeStore};
use kube::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::AbortHandle;

use crate::control_plane::ControlPlane;

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// It is done, and the connection is cut in the middle of the answer.
    CutAnswer,
    /// It never arrives; the connection is cut.
    CutRequest,
    /// It is not done, and answered with this status.
    Answer(u16),
    /// A watch that tells an error event of this status, and ends.
    Event(u16),
    /// A watch that tells something that is no event, and ends.
    Rubbish,
}

/// For which requests, and what.
type Plan = VecDeque<(Method, &'static str, Spoil)>;

#[derive(Clone)]
struct Shared {
    client: Client,
    plan: Arc<Mutex<Plan>>,
    seen: Arc<Mutex<Vec<String>>>,
}

/// A running proxy; ends when it is dropped.
pub struct Proxy {
    shared: Shared,
    dir: TempDir,
    server: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Proxy {
    /// In front of what `client` reaches.
    pub async fn start(client: Client) -> Self {
        let shared = Shared { client, plan: Arc::default(), seen: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let app = Router::new().fallback(pass).with_state(shared.clone());
        let mut tasks = tokio::task::JoinSet::new();
        let server = tasks.spawn(async move { drop(axum::serve(listener, app).await) });
        tasks.detach_all();
        let dir = tempfile::tempdir().expect("a folder");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "none"}}],
            "users": [{"name": "none", "user": {}}],
            "current-context": "test",
        });
        std::fs::write(dir.path().join("kubeconfig"), config.to_string()).expect("written");
        Self { shared, dir, server }
    }

    /// How it is reached.
    pub fn access(&self) -> Access {
        Access { kubeconfig: Some(PathBuf::from(self.dir.path()).join("kubeconfig")), context: None }
    }

    /// The next request of this method whose path and query contain `path` is spoiled.
    pub fn spoil(&self, method: Method, path: &'static str, how: Spoil) {
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner).push_back((method, path, how));
    }

    /// Whether everything that was to be spoiled was.
    pub fn done(&self) -> bool {
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The requests since this was asked last: method, path and query.
    pub fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A control plane of the v3 group with a proxy in front of it.
pub struct Proxied {
    /// The control plane.
    pub plane: ControlPlane,
    /// What spoils answers.
    pub proxy: Proxy,
    /// Over the proxy.
    pub store: KubeStore,
    /// Past it: for what others do.
    pub direct: KubeStore,
}

impl Proxied {
    /// Starts both.
    pub async fn start() -> Self {
        let plane = ControlPlane::start(Group::V3).await;
        let proxy = Proxy::start(plane.client().await).await;
        let store = KubeStore::new(Connection::new(proxy.access()).await.expect("a client"), Group::V3);
        let direct = KubeStore::new(plane.connection().await, Group::V3);
        Self { plane, proxy, store, direct }
    }
}

/// A body that breaks off after these bytes.
fn broken(start: &[u8]) -> Body {
    let start = Ok(start.to_vec());
    Body::from_stream(futures::stream::iter([start, Err(std::io::Error::other("cut"))]))
}

async fn pass(State(shared): State<Shared>, request: Request) -> Response {
    let text = request.uri().to_string();
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {text}", request.method()));
    let how = {
        let mut plan = shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let at = plan.iter().position(|(method, path, _)| method == request.method() && text.contains(path));
        at.and_then(|at| plan.remove(at)).map(|(_, _, how)| how)
    };
    match how {
        Some(Spoil::CutRequest) => Response::new(broken(b"")),
        Some(Spoil::Answer(code)) => {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "spoiled"}).to_string();
            let mut answer = (StatusCode::from_u16(code).expect("a status"), status).into_response();
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Some(Spoil::Event(code)) => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": code, "message": "spoiled"});
            Response::new(Body::from(format!("{}\n", json!({"type": "ERROR", "object": status}))))
        }
        Some(Spoil::Rubbish) => Response::new(Body::from("{\"type\": \"ADDED\", \"object\": 7}\n")),
        other => {
            let answer = forward(&shared.client, request).await;
            if other.is_some() { Response::new(broken(b"{\"kind\"")) } else { answer }
        }
    }
}

async fn forward(client: &Client, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    let mut onward = http::Request::builder().method(parts.method).uri(parts.uri);
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        if let Some(value) = parts.headers.get(&name) {
            onward = onward.header(name, value);
        }
    }
    let onward = onward.body(kube::client::Body::from(body.to_vec())).expect("a request");
    match client.send(onward).await {
        Ok(answer) => {
            // As it comes: a watch has no end.
            let code = answer.status();
            (code, Body::from_stream(answer.into_body().into_data_stream())).into_response()
        }
        Err(e) => (StatusCode::BAD_GATEWAY, e.to_string()).into_response(),
    }
}
