//! Asks a running operator whether it is well, for `helm test` and images without a shell.

use std::time::Duration;

use axum::http::{Request, Uri};
use kube::{Client, Config};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why it does not say so.
#[derive(Debug, thiserror::Error)]
pub enum NotWell {
    /// What was given is no address of a server.
    #[error("{0} is no address")]
    NoAddress(String),
    /// Nobody answers, or not with yes.
    #[error("{0} does not say that it is well")]
    No(String, #[source] Box<kube::Error>),
}

/// Gets `url`; `insecure`: whoever's certificate it has. Answers with what the operator says.
///
/// # Errors
/// It is no address, nobody answers, or the answer is no 2xx.
pub async fn healthcheck(url: &str, insecure: bool) -> Result<String, NotWell> {
    let no_address = || NotWell::NoAddress(url.into());
    let not_well = |e: kube::Error| NotWell::No(url.into(), Box::new(e));
    let uri: Uri = url.parse().map_err(|_| no_address())?;
    let server = format!("{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().ok_or_else(no_address)?);
    let mut config = Config::new(server.parse().map_err(|_| no_address())?);
    config.accept_invalid_certs = insecure;
    config.default_retry = false;
    (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
    let client = Client::try_from(config).map_err(not_well)?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let request = Request::get(path).body(Vec::new()).map_err(|_| no_address())?;
    client.request_text(request).await.map_err(not_well)
}
