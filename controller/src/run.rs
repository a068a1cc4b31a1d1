//! The loop in real time.

use std::time::Duration;

use chrono::TimeDelta;
use ipam::{Clock, Datastore, Ipam, SystemClock};
use ipam_accounting::schedule::{Limits, Time};
use ipam_datastore::live::Anew;
use ipam_metrics::Page;

use crate::admin::{Status, serve};
use crate::feed::Source;
use crate::ledger::Ledger;
use crate::look::LastLook;
use crate::pass::{PassReport, pass};
use crate::plan::{Counted, Limit, Mode, Policy};
use crate::report::report;
use crate::timeline::Event;
use crate::view::View;

/// The loop beats at least this often.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// Changes that come within so long are looked at together.
const TOGETHER: Duration = Duration::from_millis(250);

/// Metrics and probes could not be served.
#[derive(Debug, thiserror::Error)]
#[error("serving on {0}")]
pub struct ServeError(String, #[source] std::io::Error);

/// What a run obeys, as far as it was given.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Mode; default enforce.
    pub audit: bool,
    /// Grace period; default: the controllers' configuration, else 15 min.
    pub grace: Option<TimeDelta>,
    /// VM floor; default 5 min.
    pub vm_floor: Option<TimeDelta>,
    /// When the brake engages.
    pub brake: Limit,
}

/// Where the loop shows itself.
#[derive(Clone, Debug)]
pub struct Surface {
    page: Page,
    /// What the loop says of itself.
    pub status: Status,
    simulated: bool,
}

impl Surface {
    /// A blank one. `simulated`: no cluster is being changed.
    pub fn new(simulated: bool) -> Self {
        Self { page: Page::default(), status: Status::default(), simulated }
    }

    /// Serves metrics and probes on `listen` while `work` goes on; ends with it, or when `stop` is ready.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn while_served(self, listen: &str, stop: impl Future<Output = ()>, work: impl AsyncFnOnce(&Self)) -> Result<(), ServeError> {
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(|e| ServeError(listen.into(), e))?;
        let address = listener.local_addr().map_err(|e| ServeError(listen.into(), e))?;
        tracing::info!(%address, "serving metrics and probes");
        let server = serve(listener, self.page.clone(), self.status.clone());
        tokio::select! {
            ended = server => ended.map_err(|e| ServeError(listen.into(), e)),
            () = work(&self) => Ok(()),
            () = stop => Ok(()),
        }
    }

    fn tell(&self, done: &PassReport, mode: Mode) {
        done.events.iter().for_each(|e| tell(e, mode, self.simulated));
        done.failures.iter().for_each(|f| tracing::warn!(what = %f, "action failed"));
    }
}

/// What is known, what is remembered, and what is obeyed.
pub struct Operator {
    /// The cache.
    pub view: View,
    /// The memory.
    pub ledger: Ledger,
    wishes: Wishes,
}

impl Operator {
    /// One that remembers nothing yet.
    pub fn new(view: View, wishes: Wishes) -> Self {
        Self { view, ledger: Ledger::default(), wishes }
    }

    /// What it obeys now: what was asked for, else what the cluster says (D-6), else the defaults.
    pub fn policy(&self) -> Policy {
        let from_cluster = self.view.settings().map(|s| s.leak_grace.unwrap_or(TimeDelta::zero()));
        let default = Limits::default();
        let grace = self.wishes.grace.or(from_cluster).unwrap_or(default.grace);
        let limits = Limits { grace, vm_floor: self.wishes.vm_floor.unwrap_or(default.vm_floor) };
        Policy { mode: if self.wishes.audit { Mode::Audit } else { Mode::Enforce }, limits, brake: self.wishes.brake }
    }

    /// Takes over what waits, and runs a pass.
    ///
    /// # Errors
    /// What is known does not hold any more.
    pub async fn step<S: Datastore, C: Clock>(
        &mut self,
        ipam: &Ipam<S, C>,
        look: &impl LastLook,
        source: &mut impl Source,
        now: Time,
    ) -> Result<PassReport, Anew> {
        self.drain(source)?;
        let policy = self.policy();
        let done = pass(&mut self.view, &mut self.ledger, ipam, look, &policy, now).await;
        // If it all begins anew, the next step says so: what this one did must be told first.
        drop(self.drain(source));
        Ok(done)
    }

    fn drain(&mut self, source: &mut impl Source) -> Result<bool, Anew> {
        let view = &mut self.view;
        source.drain(&mut |update| view.apply(&update))
    }

    /// Pass after pass, until what is known does not hold any more.
    pub async fn passes<S: Datastore, C: Clock>(
        &mut self,
        ipam: &Ipam<S, C>,
        look: &impl LastLook,
        source: &mut impl Source,
        clock: impl Clock,
        surface: &Surface,
    ) -> Anew {
        let mut last_scan = clock.now();
        let (mut not_ready, mut braked) = (None, None);
        loop {
            let now = clock.now();
            surface.status.beat(SystemClock.now());
            if now >= last_scan + self.full_scan_interval() {
                self.view.cache.mark_all();
                last_scan = now;
            }
            let done = match self.step(ipam, look, source, now).await {
                Ok(done) => done,
                Err(anew) => return anew,
            };
            surface.tell(&done, self.policy().mode);
            if done.not_ready.is_none() {
                surface.page.publish(report(&self.view, &mut self.ledger));
            }
            if done.not_ready != not_ready {
                match &done.not_ready {
                    Some(why) => tracing::warn!(%why, "nothing is decided"),
                    None => tracing::info!("ready"),
                }
                not_ready.clone_from(&done.not_ready);
            }
            if done.braked.is_some() != braked.is_some() {
                tell_brake(done.braked);
            }
            braked = done.braked;
            surface.status.set(done.not_ready, braked);
            if done.events.is_empty() {
                let due = done.next_due.map_or(BEAT, |due| (due - clock.now()).to_std().unwrap_or(Duration::ZERO));
                tokio::select! {
                    () = source.ready() => pause(TOGETHER).await,
                    () = pause(due.min(BEAT)) => {}
                }
            }
        }
    }

    /// Half the grace, at most 15 min; 5 min without grace (gc.md 3.3, operator.md a).
    fn full_scan_interval(&self) -> TimeDelta {
        let grace = self.policy().limits.grace;
        if grace <= TimeDelta::zero() { TimeDelta::minutes(5) } else { (grace / 2).clamp(TimeDelta::seconds(1), TimeDelta::minutes(15)) }
    }
}

#[expect(clippy::disallowed_methods, reason = "the loop's one wait; it ends at the next due moment")]
pub(crate) async fn pause(wait: Duration) {
    tokio::time::sleep(wait).await;
}

/// The brake engaged, or let go.
fn tell_brake(braked: Option<Counted>) {
    match braked {
        Some(Counted { due, total, released }) => tracing::warn!(
            due,
            total,
            released,
            "the brake is engaged: no addresses of pods and VMs are released, for so many at once are rather a mistake; if they are right, start with a larger --brake-max-share"
        ),
        None => tracing::info!("the brake has let go"),
    }
}

/// The audit trail: one line per event, with everything that a person needs to follow it.
fn tell(e: &Event, mode: Mode, simulated: bool) {
    let would = mode == Mode::Audit;
    let (ip, block) = (e.ip.map(|ip| ip.to_string()), e.block.as_deref());
    let (handle, node, owner) = (e.handle.as_deref(), e.node.as_deref(), e.owner.as_deref());
    tracing::info!(action = e.action, audit = would, simulated, ip, block, handle, node, owner, why = %e.why, "decision carried out");
}
