//! Counting addresses and judging allocations: pure functions and plain state, no input or output, no clock.
//!
//! Library, operator, gauges and command line all count and judge with this crate, so that they can never
//! disagree. Five words, used the same everywhere (D-1):
//!
//! * **capacity**: how many addresses a pool or block has;
//! * **in use**: addresses that an owner holds;
//! * **cooling**: released, but not to be handed out yet (D-48: `releasedAt` is set, whatever the clock says);
//! * **reserved**: covered by a reservation, allocated or not, so it overlaps the others;
//! * **available**: neither in use, nor cooling, nor reserved: what can still be handed out.
//!
//! | module | what |
//! |---|---|
//! | [`set`] | sets of addresses of both families |
//! | [`reserved`] | reserved addresses of a CIDR |
//! | [`tracker`] | block → pool attribution and the five counts |
//! | [`names`] | interned names |
//! | [`facts`] | what we keep of pods, nodes, VMs and allocations |
//! | [`judge`](mod@judge) | the leak predicate |
//! | [`schedule`] | when a leak may be released: by handle and node |
//! | [`inventory`] | the compact cache of a whole cluster that answers as evidence |

pub mod explain;
pub mod facts;
pub mod inventory;
pub mod judge;
pub mod names;
pub mod reserved;
pub mod schedule;
pub mod set;
pub mod tracker;

pub use inventory::Inventory;
pub use judge::{Evidence, Verdict, judge};
pub use set::AddrSet;
pub use tracker::{Counts, Tracker};
