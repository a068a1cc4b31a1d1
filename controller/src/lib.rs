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
//! | [`upkeep`] | rows held against the blocks |
//! | [`leadership`] | which of several replicas acts |
//! | [`report`], [`gauges`], [`timeline`], [`explain`](mod@explain) | what is told: gauges, what happened, why |
//! | [`told`], [`events`], [`send`](mod@send) | the log, Kubernetes events, what a process counts |
//! | [`scene`], [`page`] | one moment of the loop, and pages that show it |
//! | [`status`], [`admin`], [`serve`], [`healthcheck`](mod@healthcheck) | conditions and probes, HTTP, and asking them |
//! | [`clocks`] | clocks: one that never jumps, and ones that can be moved |
//! | [`config`] | the configuration |
//! | [`args`] | the command line |

pub mod admin;
pub mod args;
pub mod clocks;
pub mod config;
pub mod events;
pub mod execute;
pub mod explain;
pub mod feed;
pub mod gauges;
pub mod healthcheck;
pub mod leadership;
pub mod ledger;
pub mod live;
pub mod look;
pub mod page;
pub mod pass;
pub mod plan;
pub mod report;
pub mod run;
pub mod scene;
pub mod send;
pub mod serve;
pub mod session;
pub mod status;
pub mod timeline;
pub mod told;
pub mod upkeep;
pub mod view;
