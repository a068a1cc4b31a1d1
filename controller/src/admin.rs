//! HTTP: metrics and probes. GET only.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use chrono::TimeDelta;
use ipam::{Clock, SystemClock};
use ipam_accounting::schedule::Time;
use ipam_metrics::Page;
use tokio::net::TcpListener;

use crate::plan::Counted;
use crate::view::NotReady;

/// A loop that has not beaten for this long is dead.
const SILENCE: TimeDelta = TimeDelta::seconds(120);

#[derive(Debug, Default)]
struct Inner {
    beat: Option<Time>,
    passed: bool,
    not_ready: Option<NotReady>,
    braked: Option<Counted>,
}

/// What the loop says of itself. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Status {
    inner: Arc<Mutex<Inner>>,
}

impl Status {
    /// The loop is alive.
    pub fn beat(&self, now: Time) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).beat = Some(now);
    }

    /// What the last pass said.
    pub fn set(&self, not_ready: Option<NotReady>, braked: Option<Counted>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.passed = true;
        inner.not_ready = not_ready;
        inner.braked = braked;
    }

    /// Liveness: the loop has beaten lately, or has not begun yet.
    pub fn alive(&self, now: Time) -> bool {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).beat.is_none_or(|b| now - b < SILENCE)
    }

    /// Readiness and a line of why (operator.md f): a locked datastore or an invalid configuration is nobody's
    /// unreadiness.
    pub fn ready(&self) -> (bool, String) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match (&inner.not_ready, inner.passed) {
            (None, true) => match inner.braked {
                None => (true, "ok".into()),
                Some(Counted { due, total, released }) => {
                    let counts = format!("{due} of {total} are due, {released} were released lately");
                    (true, format!("ok, but the brake is engaged: of addresses of pods and VMs {counts}"))
                }
            },
            (None, false) => (false, "not ready: the first pass is not over".into()),
            (Some(why), _) if why.unready() => (false, format!("not ready: {why}")),
            (Some(why), _) => (true, format!("ok, but nothing is done: {why}")),
        }
    }
}

/// Serves until the listener fails.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, page: Page, status: Status) -> std::io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/livez", get(healthz))
        .route("/readyz", get(readyz))
        .with_state((page, status));
    axum::serve(listener, app).await
}

async fn metrics(State((page, _)): State<(Page, Status)>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.text()).into_response()
}

async fn healthz(State((_, status)): State<(Page, Status)>) -> Response {
    if status.alive(SystemClock.now()) {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the loop stands still\n").into_response()
    }
}

async fn readyz(State((_, status)): State<(Page, Status)>) -> Response {
    let (ready, why) = status.ready();
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{why}\n")).into_response()
}
