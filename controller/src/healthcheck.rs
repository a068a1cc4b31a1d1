//! Asks a running operator whether it is ready, for `helm test` and images without a shell.

use std::time::Duration;

use anyhow::Context as _;
use axum::http::{Request, Uri};
use kube::{Client, Config};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gets `url`; `insecure`: whoever's certificate it has. Answers with what the operator says.
///
/// # Errors
/// The address is none, nobody answers, or the answer is no 2xx.
pub async fn healthcheck(url: &str, insecure: bool) -> anyhow::Result<String> {
    let uri: Uri = url.parse().context("--url is no address")?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let mut config = Config::new(uri.clone());
    // The path is asked for; the rest is where.
    config.cluster_url = format!("{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().context("--url names no host")?).parse()?;
    config.accept_invalid_certs = insecure;
    config.default_retry = false;
    (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
    let client = Client::try_from(config)?;
    client.request_text(Request::get(path).body(Vec::new())?).await.with_context(|| format!("{url} does not say that it is well"))
}
