//! HTTP: metrics and probes; on a port of its own what a person asks. GET only.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use futures::stream;
use ipam_metrics::Page;
use prometheus::TextEncoder;
use prometheus::core::Collector as _;
use prometheus::process_collector::ProcessCollector;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::page::{self, Asked, Place, STYLE};
use crate::status::Status;

/// Metrics and probes.
pub fn probes(page: Page, status: Status) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/livez", get(healthz))
        .route("/readyz", get(readyz))
        .with_state((page, status))
}

/// What a person asks: pages, and the same for programs. Unless `others` may ask, only for who calls this machine by its own name.
pub fn admin(status: Status, others: bool) -> Router {
    let mut router = Router::new()
        .route("/style.css", get(async || ([(header::CONTENT_TYPE, "text/css")], STYLE)))
        .route("/explain", get(explain))
        .route("/status", get(async |State(status): State<Status>| json(&status.json())))
        .route("/config", get(async |State(status): State<Status>| json(&status.report().unwrap_or_default().config)));
    for (place, path, _) in Place::ALL {
        let show = async move |State(status): State<Status>, Query(asked): Query<Asked>| show(status, place, asked).await;
        router = router.route(path, get(show));
    }
    if !others {
        router = router.layer(from_fn(at_home));
    }
    router.layer(map_response(guarded)).with_state(status)
}

/// A page of somebody else's whose name points to this machine (DNS rebinding) must not read ours: it names that host, and we are called
/// `localhost`, or by an address.
async fn at_home(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    if name.eq_ignore_ascii_case("localhost") || address {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "only for who calls this machine localhost\n").into_response()
}

/// Names of pods are whatever somebody called them: nothing but our own style is loaded, and nothing is run.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'; img-src data:; frame-ancestors 'none'"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Serves until the listener fails.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, app: Router) -> std::io::Result<()> {
    axum::serve(listener, app).await
}

async fn metrics(State((page, _)): State<(Page, Status)>) -> Response {
    let pieces = page.pieces().chain(std::iter::once_with(of_the_process)).map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], Body::from_stream(stream::iter(pieces))).into_response()
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

/// The loop is between two lives, or busy for longer than somebody waits.
fn busy(status: &Status) -> Response {
    let why = status.report().and_then(|r| r.unready.clone()).unwrap_or_default();
    (StatusCode::SERVICE_UNAVAILABLE, format!("the loop does not answer {why}\n")).into_response()
}

async fn show(status: Status, place: Place, asked: Asked) -> Response {
    // Who searches an address wants to know about it.
    if let (Place::Search, Some(ip)) = (place, asked.q.as_deref().and_then(|q| q.trim().parse::<IpAddr>().ok())) {
        return Redirect::to(&page::explain(ip)).into_response();
    }
    let report = status.report().unwrap_or_default();
    match status.ask(move |scene| place.page(scene, &asked, &report)).await {
        Some(Some(page)) => Html(page).into_response(),
        Some(None) => (StatusCode::NOT_FOUND, "there is no such block\n").into_response(),
        None => busy(&status),
    }
}

/// A query that names an address.
#[derive(Deserialize)]
struct About {
    ip: String,
}

/// For a browser a page, for anything else JSON.
async fn explain(State(status): State<Status>, headers: HeaderMap, Query(about): Query<About>) -> Response {
    let Ok(ip) = about.ip.trim().parse::<IpAddr>() else { return (StatusCode::BAD_REQUEST, "ip is no address\n").into_response() };
    let browser = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()).is_some_and(|a| a.contains("text/html"));
    if browser {
        let report = status.report().unwrap_or_default();
        let page = status.ask(move |scene| page::explained(scene, ip, &report)).await;
        return page.map_or_else(|| busy(&status), |page| Html(page).into_response());
    }
    let answer = status.ask(move |scene| crate::explain::explain(scene, ip)).await;
    answer.map_or_else(|| busy(&status), |answer| json(&answer))
}

fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}
