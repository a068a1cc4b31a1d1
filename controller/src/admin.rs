//! HTTP: metrics and probes; on a port of its own what a person asks. GET only.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ipam_metrics::Page;
use prometheus::TextEncoder;
use prometheus::core::Collector as _;
use prometheus::process_collector::ProcessCollector;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::status::Status;

/// How long the loop may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(10);

/// Metrics and probes.
pub fn probes(page: Page, status: Status) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/livez", get(healthz))
        .route("/readyz", get(readyz))
        .with_state((page, status))
}

/// What a person asks.
pub fn admin(status: Status) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/explain", get(explain))
        .route("/status", get(async |State(status): State<Status>| json(&status.json())))
        .route("/config", get(async |State(status): State<Status>| json(&status.report().unwrap_or_default().config)))
        .with_state(status)
}

/// Serves until the listener fails.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, app: Router) -> std::io::Result<()> {
    axum::serve(listener, app).await
}

async fn metrics(State((page, _)): State<(Page, Status)>) -> Response {
    let text = page.text() + &of_the_process();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The series of the process itself.
fn of_the_process() -> String {
    let families = ProcessCollector::for_self().collect();
    TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}

async fn healthz(State((_, status)): State<(Page, Status)>) -> Response {
    if status.alive() { "ok\n".into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, "the loop stands still\n").into_response() }
}

async fn readyz(State((_, status)): State<(Page, Status)>) -> Response {
    let (ready, why) = status.ready();
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, why).into_response()
}

async fn index() -> Response {
    "/explain?ip=ADDRESS  why an address is what it is\n/status  conditions, brake, what is due\n/config  the configuration in force\n"
        .into_response()
}

/// A query that names an address.
#[derive(Deserialize)]
struct About {
    ip: String,
}

async fn explain(State(status): State<Status>, Query(about): Query<About>) -> Response {
    let Ok(ip) = about.ip.parse::<IpAddr>() else { return (StatusCode::BAD_REQUEST, "ip is no address\n").into_response() };
    match timeout(PATIENCE, status.explain(ip)).await {
        Ok(Some(answer)) => json(&answer),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

fn json(value: &Value) -> Response {
    let text = format!("{value:#}\n");
    let mut response = ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    // Names of pods are whatever somebody called them.
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"));
    response
}
