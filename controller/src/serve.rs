//! Serves metrics, probes and questions while the loop works, and ends it gently.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::admin::{admin, probes, serve};
use crate::run::around::Around;

/// How long a running action may take to end when somebody wants us to stop.
const GENTLY: Duration = Duration::from_secs(10);

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
    let server = serve(listen(&at, "metrics and probes").await?, probes(around.page.clone(), around.status.clone()));
    let questions = if admin_at.is_empty() { None } else { Some(listen(&admin_at, "explanations").await?) };
    let app = admin(around.status.clone());
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
