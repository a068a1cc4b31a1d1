//! Serves metrics, probes and questions while the loop works, and ends it gently.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpListener;
use tokio::time::{interval, timeout};

use crate::admin::{admin, probes, serve};
use crate::run::around::Around;

/// How long a running action may take to end when somebody wants us to stop.
const GENTLY: Duration = Duration::from_secs(10);

/// How often certificate and key are looked at.
const REREAD: Duration = Duration::from_secs(5);

/// Metrics, probes or questions could not be served.
#[derive(Debug, thiserror::Error)]
#[error("serving on {0}")]
pub struct ServeError(String, #[source] std::io::Error);

async fn listen(address: &str, what: &str) -> Result<TcpListener, ServeError> {
    let error = |e| ServeError(address.into(), e);
    let listener = TcpListener::bind(address).await.map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    tracing::info!(%address, "serving {what}");
    Ok(listener)
}

/// Serves over TLS; certificate and key are read again when they change.
async fn secured(listener: TcpListener, app: Router, cert: &Path, key: &Path) -> std::io::Result<()> {
    let config = RustlsConfig::from_pem_file(cert, key).await?;
    let read = || Some((std::fs::read(cert).ok()?, std::fs::read(key).ok()?));
    let changes = async {
        let (mut last, mut every) = (read(), interval(REREAD));
        loop {
            every.tick().await;
            let now = read();
            if now.is_some() && now != last {
                match config.reload_from_pem_file(cert, key).await {
                    Ok(()) => tracing::info!("the certificate was read again"),
                    Err(e) => tracing::warn!(error = %e, "the certificate cannot be read: the old one stays"),
                }
                last = now;
            }
        }
    };
    let server = axum_server::from_tcp_rustls(listener.into_std()?, config.clone())?.serve(app.into_make_service());
    tokio::select! {
        ended = server => ended,
        never = changes => never,
    }
}

/// Serves while `work` goes on; ends with it. When `stop` is ready nothing new is begun, and what runs is finished or, after ten
/// seconds, abandoned: which is as safe as a crash.
///
/// # Errors
/// An address cannot be listened on.
pub async fn while_served(
    around: &mut Around,
    stop: impl Future<Output = ()>,
    work: impl AsyncFnOnce(&mut Around),
) -> Result<(), ServeError> {
    let (at, admin_at) = (around.config.listen.clone(), around.config.admin_listen.clone());
    let (listener, tls) = (listen(&at, "metrics and probes").await?, around.config.tls.clone());
    let app = probes(around.page.clone(), around.status.clone());
    let server = async {
        match tls {
            Some((cert, key)) => secured(listener, app, &cert, &key).await,
            None => serve(listener, app).await,
        }
    };
    let questions = if admin_at.is_empty() { None } else { Some(listen(&admin_at, "the page and explanations").await?) };
    let others = questions.as_ref().is_some_and(|l| l.local_addr().is_ok_and(|a| !a.ip().is_loopback()));
    let app = admin(around.status.clone(), others);
    let questions = async {
        match questions {
            Some(listener) => serve(listener, app).await.map_err(|e| ServeError(admin_at, e)),
            None => std::future::pending().await,
        }
    };
    let (status, wake) = (around.status.clone(), around.stop.clone());
    let gently = async {
        let mut work = std::pin::pin!(work(around));
        tokio::select! {
            () = &mut work => {}
            () = stop => {
                tracing::info!("stopping: nothing new is begun");
                status.stop();
                wake.notify_one();
                if timeout(GENTLY, work).await.is_err() {
                    tracing::warn!("what runs is abandoned");
                }
            }
        }
    };
    tokio::select! {
        ended = server => ended.map_err(|e| ServeError(at, e)),
        ended = questions => ended,
        () = gently => Ok(()),
    }
}
