//! View and ledger → actions. Deterministic, no input or output, no clock: `now` is an argument.
//!
//! A pass looks only at the blocks and nodes that changed or whose time has come; a full scan is the same path with
//! everything marked. The order of actions: leaks, cold blocks, empty blocks, departed nodes.

mod blocks;
pub(crate) mod brake;
mod departures;
mod leaks;
mod nodes;
pub(crate) mod opt_outs;
mod rate;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::Release;
use ipam::ids::BlockCidr;
use ipam::model::Config;
use ipam_accounting::Evidence;
use ipam_accounting::facts::NodeId;
use ipam_accounting::inventory::{AllocRef, BlockId, Dirty, Owner};
use ipam_accounting::judge::Leak;
use ipam_accounting::schedule::{Limits, Time};
use ipnet::IpNet;
use rustc_hash::FxHashSet;

pub use self::brake::{Allowance, Brake, Counted, Limit, State as BrakeState};
pub use self::departures::{Departures, Mass};
pub use self::opt_outs::{Annotated, Because, InForce, OptOuts};
pub use self::rate::{Bucket, Rate};
use crate::ledger::{Ledger, Subject};
use crate::view::View;

/// What the operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decides and acts.
    Enforce,
    /// Decides, shows each decision once, writes nothing (D-24, D-49).
    Audit,
}

/// What a plan obeys.
#[derive(Clone, Debug)]
pub struct Policy {
    /// This one may act: it is no passive replica.
    pub active: bool,
    /// Nothing is written.
    pub paused: bool,
    /// The clocks of this machine and of the API server agree: what cools may be collected (D-93).
    pub in_step: bool,
    /// Mode.
    pub mode: Mode,
    /// Waiting times.
    pub limits: Limits,
    /// When the brake engages.
    pub brake: Limit,
    /// What may pass it.
    pub allow: Option<Allowance>,
    /// When many nodes vanish together.
    pub departed: Mass,
    /// How quickly addresses go.
    pub rate: Rate,
    /// What the configuration says must stay.
    pub opt_outs: OptOuts,
}

impl Default for Policy {
    /// Active, enforcing, and everything else by its own default.
    fn default() -> Self {
        Self {
            active: true,
            paused: false,
            in_step: true,
            mode: Mode::Enforce,
            limits: Limits::default(),
            brake: Limit::default(),
            allow: None,
            departed: Mass::default(),
            rate: Rate::default(),
            opt_outs: OptOuts::default(),
        }
    }
}

impl Policy {
    /// Whether anything may be written.
    pub fn writes(&self) -> bool {
        self.active && !self.paused && self.mode == Mode::Enforce
    }
}

/// What time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// By a clock that never jumps; all waiting is by it (D-93).
    pub steady: Time,
    /// By the wall clock, as others stamp what they write.
    pub wall: Time,
}

impl Now {
    /// Both clocks say the same.
    pub fn both(now: Time) -> Self {
        Self { steady: now, wall: now }
    }

    /// A moment of the wall clock by the steady one.
    pub fn steady(&self, wall: Time) -> Time {
        self.steady.checked_add_signed(wall - self.wall).unwrap_or(Time::MAX_UTC)
    }

    /// A moment of the steady clock by the wall clock.
    pub fn wall(&self, steady: Time) -> Time {
        self.wall.checked_add_signed(steady - self.steady).unwrap_or(Time::MAX_UTC)
    }
}

/// A leaked address to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaked {
    /// Where it stands in the view.
    pub at: AllocRef,
    /// Its block.
    pub block: BlockCidr,
    /// The address.
    pub ip: IpAddr,
    /// Its handle, sanitised.
    pub handle: Option<String>,
    /// Its sequence number.
    pub seq: i64,
    /// The node that its owner attributes name.
    pub node: Option<String>,
    /// Its owner, as outputs name it.
    pub owner: Option<String>,
    /// Why it is leaked.
    pub leak: Leak,
}

impl Leaked {
    /// The release of exactly this allocation.
    pub fn release(&self) -> Release {
        Release::exact(self.ip, self.handle.as_deref(), self.seq, Some(self.block)).owned_by(self.owner.clone(), self.node.clone())
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give back all addresses of one handle, or one address without handle.
    Release(Vec<Leaked>),
    /// Free what has cooled in a block.
    CollectCold(BlockCidr),
    /// Give an empty block back, or a row without block.
    ReleaseBlock {
        /// Its owner.
        node: String,
        /// The block.
        block: BlockCidr,
        /// The sequence number with which it was seen empty; `None`: there is no block.
        seq: Option<i64>,
        /// Its node is gone.
        departed: bool,
    },
    /// Clean up what is left of a node that is gone.
    ReleaseHost(String),
}

/// What a pass is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub actions: Vec<Action>,
    /// Addresses whose release waits for the brake or the rate.
    pub waiting: u64,
    /// What is released next, when the rate allows it.
    pub soon: Vec<Leaked>,
    /// The next moment at which something is due.
    pub next_due: Option<Time>,
}

/// Decides what to do at `now`, given what changed.
pub fn plan(view: &View, ledger: &mut Ledger, dirty: Dirty, now: Now, policy: &Policy, config: &Config) -> Plan {
    let mut planner = Planner { view, ledger, now: now.steady, wall: now.wall, policy, config, plan: Plan::default() };
    planner.run(dirty);
    planner.plan.next_due = planner.ledger.timers.next();
    planner.plan
}

struct Planner<'a> {
    view: &'a View,
    ledger: &'a mut Ledger,
    now: Time,
    wall: Time,
    policy: &'a Policy,
    config: &'a Config,
    plan: Plan,
}

impl Planner<'_> {
    fn run(&mut self, dirty: Dirty) {
        dirty.removed.iter().for_each(|cidr| self.ledger.forget(*cidr));
        let (blocks, mut nodes) = self.wake(dirty.blocks, dirty.nodes);
        self.departures(&nodes);
        let leaked = self.scan(&blocks, &mut nodes);
        self.groups(leaked);
        self.cold(&blocks);
        // By name, so that the order does not depend on numbers.
        let nodes: BTreeSet<(&str, NodeId)> =
            nodes.into_iter().filter(|n| self.view.cache.concerns(*n)).map(|n| (self.view.cache.node_text(n), n)).collect();
        let mut gone = Vec::new();
        for (name, node) in nodes {
            if self.view.cache.node(node).is_absent() {
                gone.push((name, node));
            } else {
                self.empty_blocks(name, node);
            }
        }
        gone.into_iter().for_each(|(name, node)| self.departed(name, node));
        self.order();
        self.brake();
        if self.policy.writes() {
            self.limit();
        }
    }

    /// The blocks and nodes to look at: what changed, and whose time has come. Their timers start from nothing.
    fn wake(&mut self, dirty: FxHashSet<BlockId>, mut nodes: FxHashSet<NodeId>) -> (Vec<BlockId>, FxHashSet<NodeId>) {
        let mut blocks: BTreeSet<(IpNet, BlockId)> =
            dirty.into_iter().filter_map(|id| Some((self.view.cache.block(id)?.cidr, id))).collect();
        for subject in self.ledger.timers.take_due(self.now) {
            match subject {
                Subject::Block(cidr) => blocks.extend(self.view.cache.block_of(cidr).map(|(id, _)| (cidr, id))),
                Subject::Node(node) => drop(nodes.insert(node)),
            }
        }
        for (cidr, _) in &blocks {
            self.ledger.timers.clear(Subject::Block(*cidr));
        }
        for (_, id) in &blocks {
            if let Some(Owner::Host(node)) = self.view.cache.block(*id).map(|b| b.owner) {
                nodes.insert(node);
            }
        }
        (blocks.into_iter().map(|(_, id)| id).collect(), nodes)
    }

    /// Puts the actions of the pass into their order, so that the same state gives the same plan.
    fn order(&mut self) {
        self.plan.actions.sort_by_cached_key(|action| match action {
            Action::Release(members) => (0, members.first().map(|m| IpNet::from(m.ip)), String::new()),
            Action::CollectCold(block) => (1, Some(block.net()), String::new()),
            Action::ReleaseBlock { departed: false, block, .. } => (2, Some(block.net()), String::new()),
            Action::ReleaseBlock { departed: true, block, node, .. } => (3, Some(block.net()), node.clone()),
            Action::ReleaseHost(node) => (4, None, node.clone()),
        });
        self.plan.actions.dedup();
    }

    /// A moment of the wall clock by the clock that never jumps.
    fn steady(&self, wall: Time) -> Time {
        Now { steady: self.now, wall: self.wall }.steady(wall)
    }

    fn audit(&self) -> bool {
        self.policy.mode == Mode::Audit
    }

    /// Looks at a block again at `at`.
    fn wake_block(&mut self, cidr: IpNet, at: Time) {
        self.ledger.timers.lower(Subject::Block(cidr), at);
    }

    /// Whether the block must be left alone until the feed shows what was done to it last.
    fn settling(&mut self, block: BlockId) -> bool {
        let Some(block) = self.view.cache.block(block) else { return true };
        let until = self.ledger.acted_on(block, self.now);
        if let Some(until) = until {
            self.wake_block(block.cidr, until);
        }
        until.is_some()
    }
}
