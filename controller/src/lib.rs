//! The operator: policy over time.
//!
//! One pass, from watch event to gauge: [`view`] (the only cache) → [`plan`](mod@plan) (decides, does nothing) →
//! [`execute`] (acts, decides nothing, may refuse) → [`ledger`] (remembers) → [`report`] (plain numbers).
//!
//! | module | what |
//! |---|---|
//! | [`view`] | the cache and its gates; one writer |
//! | [`ledger`] | memory across passes: timers, observations, what was done |
//! | [`plan`](mod@plan) | view and ledger → actions, in order |
//! | [`execute`] | actions → outcomes, with a last look before each release |
//! | [`pass`] | one pass, start to end |
//! | [`look`] | the last look |
//! | [`feed`] | where updates come from |
//! | [`run`] | the loop in real time |
//! | [`session`] | over a dump, also with a clock that jumps |
//! | [`live`] | over a live cluster |
//! | [`report`], [`timeline`] | what is told: gauges, and what happened |
//! | [`admin`] | HTTP |
//! | [`clocks`] | clocks that can be moved |
//! | [`args`] | the command line |

pub mod admin;
pub mod args;
pub mod clocks;
pub mod execute;
pub mod feed;
pub mod ledger;
pub mod live;
pub mod look;
pub mod pass;
pub mod plan;
pub mod report;
pub mod run;
pub mod session;
pub mod timeline;
pub mod view;
