//! Faults that the tests plant to see that the schedule explorer finds them. Only with feature `planted`, which no product
//! enables; without it every question answers no at compile time.

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault in the library.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Planted {
            $($(#[$doc])* $name,)*
        }

        impl Planted {
            /// All of them.
            #[cfg(feature = "planted")]
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}
faults! {
    /// A release does not look at the sequence number.
    ReleaseWithoutSequence,
    /// A handle is counted after the block was written.
    CountAfterWrite,
    /// A handle that exists is not counted up.
    CountOnce,
    /// A handle is counted down before the block is written.
    LowerBeforeRelease,
    /// The last release of one block deletes the handle whatever it has elsewhere.
    LowerDeletes,
    /// A write without answer is undone.
    UndoUnknown,
    /// A write without answer counts as done.
    UnknownIsDone,
    /// A lost race is written again with what was decided before.
    WriteOldDecision,
    /// A block is deleted although it has got addresses since it was read.
    DeleteUnread,
    /// A block with addresses is deleted instead of left without owner.
    DeleteFull,
    /// A release by handle drops the counts of blocks in which it finds nothing.
    DropCounts,
    /// A move does not look who has the address now.
    MoveAnything,
    /// A release by handle does not look whose addresses they are.
    ReleaseOthers,
    /// A row is said to be deleted by whoever finds it gone.
    GoneIsDeleted,
    /// A handle is counted down whatever became of its row since it was counted up.
    LowerAnyRow,
    /// A claim is confirmed before its block is there.
    ConfirmFirst,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault for this thread, or takes it away.
#[cfg(feature = "planted")]
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether a fault is there.
#[cfg(feature = "planted")]
pub(crate) fn planted(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}

/// Never.
#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Planted) -> bool {
    false
}
