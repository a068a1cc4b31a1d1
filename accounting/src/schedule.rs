//! When a leak may be released: the one schedule that groups verdicts by handle and by node (D-46).
//!
//! The planner feeds it with the times at which leaks were first seen, `ipamctl check` with one moment for all.

use chrono::{DateTime, TimeDelta, Utc};

use crate::facts::Class;
use crate::judge::{Leak, Verdict};

/// A moment.
pub type Time = DateTime<Utc>;

/// The two waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Leak grace period; zero: off, nothing that waits is ever released (D-6).
    pub grace: TimeDelta,
    /// Floor of the grace of VM allocations (D-25).
    pub vm_floor: TimeDelta,
}

impl Default for Limits {
    /// 15 and 5 minutes.
    fn default() -> Self {
        Self { grace: TimeDelta::minutes(15), vm_floor: TimeDelta::minutes(5) }
    }
}

/// What a leak waits for (last sentence of D-86).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Nothing: its node is gone.
    Now,
    /// The grace period.
    Grace,
    /// The longer of grace period and VM floor, on departed nodes too.
    VmGrace,
    /// Everything else of its node (D-42).
    WithNode,
}

/// What a leak waits for, by the class of its owner, whether it has a handle, and whether its node is gone.
pub fn wait(leak: Leak, class: Class, has_handle: bool, node_departed: bool) -> Wait {
    match (leak, class) {
        (Leak::NodeGone, _) => Wait::WithNode,
        (Leak::VmGone, _) | (_, Class::Vm(_)) => Wait::VmGrace,
        (Leak::PodUnscheduled, _) => Wait::Grace,
        _ if !has_handle || !node_departed => Wait::Grace,
        _ => Wait::Now,
    }
}

impl Limits {
    /// When a leak first seen at `since` has waited long enough; `None`: never, or not by time alone.
    pub fn due(&self, wait: Wait, since: Time) -> Option<Time> {
        let off = self.grace <= TimeDelta::zero();
        match wait {
            Wait::Now => Some(since),
            Wait::WithNode => None,
            Wait::Grace | Wait::VmGrace if off => None,
            Wait::Grace => since.checked_add_signed(self.grace),
            Wait::VmGrace => since.checked_add_signed(self.grace.max(self.vm_floor)),
        }
    }
}

/// One address of a handle or of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it was judged to be.
    pub verdict: Verdict,
    /// What it waits for; only looked at where the verdict is leaked.
    pub wait: Wait,
    /// When the leak was first seen; only looked at where the verdict is leaked.
    pub since: Time,
    /// A host reservation: no obstacle to anything.
    pub host_reserved: bool,
}

/// Why a leaked address stays although nobody uses it: a part of its handle is not leaked (D-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HeldBy {
    /// Some address of the handle is in use.
    InUse,
    /// Of some address of the handle it cannot be told.
    Unknown,
    /// An object that was not understood may belong to the handle (D-38).
    BadObject,
    /// Somebody said that an address of the handle must not be released (operator.md d).
    OptedOut,
}

impl HeldBy {
    /// The reason in words.
    pub fn why(self) -> &'static str {
        match self {
            HeldBy::InUse => "another address of the same handle is in use (all or none)",
            HeldBy::Unknown => "of another address of the same handle it cannot be told whether it is in use (all or none)",
            HeldBy::BadObject => "an object that was not understood may belong to the same handle",
            HeldBy::OptedOut => "somebody said that this address, or another one of the same handle, must not be released",
        }
    }
}

/// What happens to the leaked addresses of one handle: all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Nothing is leaked.
    Quiet,
    /// Something is leaked, but not everything.
    Held(HeldBy),
    /// Everything is leaked and goes together.
    Open {
        /// When every timer is over; `None`: never (grace off).
        due: Option<Time>,
        /// Waits for its node besides.
        with_node: bool,
    },
}

/// The state of one handle.
pub fn group(members: impl IntoIterator<Item = Member>, limits: &Limits) -> Group {
    let (mut leaked, mut held, mut due, mut with_node) = (false, None::<HeldBy>, Some(Time::MIN_UTC), false);
    for m in members {
        match m.verdict {
            Verdict::Leaked(_) => {
                leaked = true;
                with_node |= m.wait == Wait::WithNode;
                if m.wait != Wait::WithNode {
                    due = due.and_then(|d| limits.due(m.wait, m.since).map(|x| d.max(x)));
                }
            }
            Verdict::InUse(_) => held = Some(HeldBy::InUse),
            Verdict::Unknown(_) => held = held.or(Some(HeldBy::Unknown)),
            Verdict::Cooling => {}
        }
    }
    match held {
        _ if !leaked => Group::Quiet,
        Some(by) => Group::Held(by),
        None => Group::Open { due, with_node },
    }
}

/// How far a departed node is (D-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Every address of it is a confirmed leak (held ones too) or cooling: tunnels and blocks may go.
    Ready,
    /// Some leak still waits; the moment when the last timer is over, if that is known.
    Waits(Option<Time>),
    /// Some address is in use or unknown.
    Occupied,
}

/// The state of one departed node at `now`, from all addresses that name it.
pub fn departed(members: impl IntoIterator<Item = Member>, limits: &Limits, now: Time) -> NodeState {
    let mut last = Some(Time::MIN_UTC);
    for m in members.into_iter().filter(|m| !m.host_reserved) {
        match m.verdict {
            Verdict::InUse(_) | Verdict::Unknown(_) => return NodeState::Occupied,
            Verdict::Leaked(_) if m.wait != Wait::WithNode => {
                last = last.and_then(|l| limits.due(m.wait, m.since).map(|d| l.max(d)));
            }
            Verdict::Leaked(_) | Verdict::Cooling => {}
        }
    }
    if last.is_some_and(|l| l <= now) { NodeState::Ready } else { NodeState::Waits(last) }
}

/// The word for when a leak of a group goes, as `ipamctl check` says it.
pub fn when(group: Group, wait: Wait) -> &'static str {
    match (group, wait) {
        (Group::Held(_), _) => "held",
        (_, Wait::Now) => "now",
        (_, Wait::Grace) => "grace",
        (_, Wait::VmGrace) => "vm-grace",
        (_, Wait::WithNode) => "with-node",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{PodId, VmId};
    use crate::judge::{InUse, Unknown};

    fn at(minute: i64) -> Time {
        Time::UNIX_EPOCH + TimeDelta::minutes(minute)
    }

    fn member(verdict: Verdict, wait: Wait) -> Member {
        Member { verdict, wait, since: at(0), host_reserved: false }
    }

    const LEAKED: Verdict = Verdict::Leaked(Leak::PodGone);
    const USED: Verdict = Verdict::InUse(InUse::ReportedByPod);

    #[test]
    fn gcc_40_what_each_leak_waits_for() {
        let (pod, vm) = (Class::Pod(PodId(0)), Class::Vm(Some(VmId(0))));
        assert_eq!(wait(Leak::PodGone, pod, true, false), Wait::Grace);
        assert_eq!(wait(Leak::PodGone, pod, true, true), Wait::Now);
        assert_eq!(wait(Leak::PodGone, pod, false, true), Wait::Grace, "D-16: no handle always waits");
        assert_eq!(wait(Leak::PodUnscheduled, pod, true, true), Wait::Grace, "D-15");
        assert_eq!(wait(Leak::VmGone, vm, true, true), Wait::VmGrace, "D-25: on departed nodes too");
        assert_eq!(wait(Leak::NodeGone, Class::Tunnel, true, true), Wait::WithNode);
    }

    #[test]
    fn gcc_41_gcc_42_gcv_08_grace_zero_confirms_nothing_that_waits() {
        let off = Limits { grace: TimeDelta::zero(), ..Limits::default() };
        assert_eq!(off.due(Wait::Grace, at(0)), None);
        assert_eq!(off.due(Wait::VmGrace, at(0)), None);
        assert_eq!(off.due(Wait::Now, at(0)), Some(at(0)));
    }

    #[test]
    fn gcc_43_gcv_04_due_times() {
        let limits = Limits::default();
        assert_eq!(limits.due(Wait::Grace, at(0)), Some(at(15)));
        assert_eq!(limits.due(Wait::VmGrace, at(0)), Some(at(15)));
        let short = Limits { grace: TimeDelta::minutes(1), ..limits };
        assert_eq!(short.due(Wait::Grace, at(0)), Some(at(1)));
        assert_eq!(short.due(Wait::VmGrace, at(0)), Some(at(5)));
    }

    #[test]
    fn gch_01_all_or_none() {
        let limits = Limits::default();
        let leaked = member(LEAKED, Wait::Grace);
        assert_eq!(group([leaked, member(USED, Wait::Now)], &limits), Group::Held(HeldBy::InUse));
        let unknown = member(Verdict::Unknown(Unknown::PodUnsure), Wait::Now);
        assert_eq!(group([unknown, leaked], &limits), Group::Held(HeldBy::Unknown));
        assert_eq!(group([unknown, leaked, member(USED, Wait::Now)], &limits), Group::Held(HeldBy::InUse));
        let late = Member { since: at(3), ..leaked };
        assert_eq!(group([leaked, late], &limits), Group::Open { due: Some(at(18)), with_node: false });
        assert_eq!(group([member(USED, Wait::Now)], &limits), Group::Quiet);
    }

    #[test]
    fn gct_02_d_42_a_departed_node_waits_for_its_slowest_leak() {
        let limits = Limits::default();
        let (now_leak, slow, tunnel) =
            (member(LEAKED, Wait::Now), member(LEAKED, Wait::Grace), member(Verdict::Leaked(Leak::NodeGone), Wait::WithNode));
        assert_eq!(departed([tunnel], &limits, at(0)), NodeState::Ready);
        assert_eq!(departed([now_leak, tunnel, slow], &limits, at(14)), NodeState::Waits(Some(at(15))));
        assert_eq!(departed([now_leak, tunnel, slow], &limits, at(15)), NodeState::Ready);
        assert_eq!(departed([tunnel, member(USED, Wait::Now)], &limits, at(99)), NodeState::Occupied);
        let windows = Member { host_reserved: true, ..member(USED, Wait::Now) };
        assert_eq!(departed([windows], &limits, at(0)), NodeState::Ready, "host reservations do not block");
        let off = Limits { grace: TimeDelta::zero(), ..limits };
        assert_eq!(departed([slow], &off, at(99)), NodeState::Waits(None));
    }
}
