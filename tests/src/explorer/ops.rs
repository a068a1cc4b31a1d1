//! The operations whose schedules are explored.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures::FutureExt;
use ipam::affinity::Conditions;
use ipam::model::Config;
use ipam::owners::{OwnerRef, OwnerUpdate, Side};
use ipam::{AssignError, AssignIp, AutoAssign, HandleId, HostReserve, Ipam, Outcome, Owner, Release};
use ipam_operator::clocks::SimClock;

use super::gate::{AA, AB, B, Gated, RowSet, handle};
use super::seeds::{BLOCK, HELD};
use crate::lab::{cidr, ip, net};

/// What a client was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Told {
    /// Identities that are its own now.
    pub owns: Vec<(String, IpAddr)>,
    /// Identities that are gone.
    pub gone: Vec<(String, IpAddr)>,
    /// It cannot tell what became of a write.
    pub unknown: bool,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An operation with its arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $name,)*
        }

        impl Op {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}
ops! {
    /// Host `a` wants an address for `h1`.
    AssignA,
    /// Host `b` wants an address for `h2`.
    AssignB,
    /// Host `a` wants an address more for `s`.
    AssignMore,
    /// Host `a` wants an address for `h3`, of which there may be one.
    AssignOne,
    /// Host `b` wants a certain address for `h4`.
    AssignIp,
    /// What `s` has is released, exactly.
    Release,
    /// Everything of `s` is released.
    ReleaseHandle,
    /// `s` is released by somebody who saw it long ago, and `s` gets the address anew.
    Reuse,
    /// The address of `s` moves to `h5`.
    Move,
    /// The address of `s` gets an alternate owner.
    SetOwner,
    /// `a` gives its block back if it is empty.
    GiveBack,
    /// `a` gives everything back.
    ReleaseHost,
    /// `b` wants a block.
    EnsureB,
    /// `b` claims the block.
    ClaimB,
    /// `a` claims the block.
    ClaimA,
    /// Cold addresses are collected.
    Collect,
}

type Lib = Ipam<Gated, Arc<SimClock>>;
type Run = Pin<Box<dyn Future<Output = Told>>>;

impl Op {
    /// The handles that it releases or renames: nobody owns them any more.
    pub fn ends(self) -> &'static [&'static str] {
        match self {
            Op::Release | Op::ReleaseHandle | Op::Move | Op::Reuse => &["s"],
            _ => &[],
        }
    }

    /// The handles of which it may leave addresses when it cannot tell.
    pub fn may_leave(self) -> &'static [&'static str] {
        match self {
            Op::AssignA => &["h1"],
            Op::AssignB => &["h2"],
            Op::AssignMore | Op::Reuse => &["s"],
            Op::AssignOne => &["h3"],
            Op::AssignIp => &["h4"],
            Op::Move => &["h5"],
            _ => &[],
        }
    }

    /// The rows that it may read or write.
    pub(super) fn touches(self) -> RowSet {
        match self {
            Op::AssignA => B | AA | AB | handle("h1"),
            Op::AssignB => B | AA | AB | handle("h2"),
            Op::AssignMore => B | AA | AB | handle("s"),
            Op::AssignOne => B | AA | AB | handle("h3"),
            Op::AssignIp => B | AB | handle("h4"),
            Op::Release | Op::ReleaseHandle => B | handle("s"),
            Op::Reuse => B | AB | handle("s"),
            Op::Move => B | handle("s") | handle("h5"),
            Op::SetOwner | Op::Collect => B,
            Op::GiveBack | Op::ClaimA => B | AA,
            Op::ClaimB => B | AB,
            Op::ReleaseHost | Op::EnsureB => B | AA | AB,
        }
    }

    pub(super) fn run(self, ipam: Lib) -> Run {
        match self {
            Op::AssignA => assign(ipam, "a", "h1", None).boxed_local(),
            Op::AssignB => assign(ipam, "b", "h2", None).boxed_local(),
            Op::AssignMore => assign(ipam, "a", "s", None).boxed_local(),
            Op::AssignOne => assign(ipam, "a", "h3", Some(1)).boxed_local(),
            Op::AssignIp => async move { assign_ip(&ipam, "10.0.0.1", "h4").await }.boxed_local(),
            Op::Release => async move { release(&ipam).await }.boxed_local(),
            Op::ReleaseHandle => async move {
                let done = ipam.release_by_handle(&HandleId::new("s")).await;
                let gone = done.unwrap_or_default().into_iter().map(|ip| ("s".to_owned(), ip)).collect();
                Told { gone, ..Told::default() }
            }
            .boxed_local(),
            Op::Reuse => async move {
                let told = release(&ipam).await;
                if told.gone.is_empty() { told } else { assign_ip(&ipam, HELD.0, "s").await }
            }
            .boxed_local(),
            Op::Move => async move {
                let owner = OwnerRef { namespace: "ns".into(), name: "s".into() };
                let done = ipam.move_ip_to_handle(ip(HELD.0), "h5", &owner, None).await;
                let owns = if done.is_ok() { vec![("h5".into(), ip(HELD.0))] } else { Vec::new() };
                Told { owns, unknown: done.is_err(), ..Told::default() }
            }
            .boxed_local(),
            Op::SetOwner => async move {
                let set = Some([("pod".into(), "target".into()), ("namespace".into(), "ns".into())].into());
                let update = OwnerUpdate { alternate: Side { set, ..Side::default() }, ..OwnerUpdate::default() };
                drop(ipam.set_owner_attributes(ip(HELD.0), "s", &update).await);
                Told::default()
            }
            .boxed_local(),
            Op::GiveBack => async move {
                let conditions = Conditions { must_be_empty: true, seq: Some(5) };
                drop(ipam.release_block_affinity(&Owner::Host("a".into()), cidr(BLOCK), conditions).await);
                Told::default()
            }
            .boxed_local(),
            Op::ReleaseHost => async move {
                drop(ipam.release_host("a", false).await);
                Told::default()
            }
            .boxed_local(),
            Op::EnsureB => async move {
                let reserve = HostReserve { first: 0, last: 0, handle: "windows-reserved-ipam-handle".into(), note: "n".into() };
                drop(ipam.ensure_block(&AutoAssign::new("b", "Workload", 0, 0).reserve(ipam::Family::V4, reserve)).await);
                Told::default()
            }
            .boxed_local(),
            Op::ClaimA => claim(ipam, "a").boxed_local(),
            Op::ClaimB => claim(ipam, "b").boxed_local(),
            Op::Collect => async move {
                drop(ipam.collect_cold(&Config { cooldown_seconds: 60, ..Config::default() }, cidr(BLOCK)).await);
                Told::default()
            }
            .boxed_local(),
        }
    }
}

async fn claim(ipam: Lib, host: &'static str) -> Told {
    drop(ipam.claim_affinity(net(BLOCK), host).await);
    Told::default()
}

async fn assign(ipam: Lib, host: &'static str, handle: &'static str, max: Option<u32>) -> Told {
    let mut args = AutoAssign::new(host, "Workload", 1, 0).handle(handle);
    if let Some(max) = max {
        args = args.max_per_handle(max);
    }
    match ipam.auto_assign(&args).await {
        Ok(got) => {
            let got = got.v4.unwrap_or_default();
            let owns = got.ips.iter().map(|n| (handle.to_owned(), n.addr())).collect();
            Told { owns, unknown: !got.unknown.is_empty(), ..Told::default() }
        }
        Err(e) => Told { unknown: matches!(e, AssignError::Unknown(_)), ..Told::default() },
    }
}

async fn assign_ip(ipam: &Lib, at: &str, handle: &str) -> Told {
    let done = ipam.assign_ip(&AssignIp::new(ip(at), "b").handle(handle)).await;
    let owns = if done.is_ok() { vec![(handle.to_owned(), ip(at))] } else { Vec::new() };
    Told { owns, unknown: matches!(done, Err(AssignError::Unknown(_))), ..Told::default() }
}

async fn release(ipam: &Lib) -> Told {
    let exact = Release::exact(ip(HELD.0), Some("s"), HELD.1, Some(cidr(BLOCK)));
    let Ok(report) = ipam.release_ips(&[exact]).await else { return Told::default() };
    let gone = report.outcomes.iter().filter(|(_, o)| **o == Outcome::Released).map(|(ip, _)| ("s".to_owned(), *ip)).collect();
    Told { gone, ..Told::default() }
}
