//! The two API groups, of which a cluster uses one (wire-format.md 1).

use std::fmt;

/// An API group that stores Calico's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `crd.projectcalico.org/v1`.
    V1,
    /// `projectcalico.org/v3`.
    V3,
}

impl Group {
    /// The group of an `apiVersion`.
    pub fn of(api_version: &str) -> Option<Self> {
        [Self::V1, Self::V3].into_iter().find(|g| g.api_version() == api_version)
    }

    /// The group that a person names.
    ///
    /// # Errors
    /// It is none.
    pub fn named(text: &str) -> Result<Self, String> {
        let wanted = |g: &Self| g.api_version().eq_ignore_ascii_case(text);
        [Self::V1, Self::V3].into_iter().find(wanted).ok_or_else(|| format!("{text:?} is neither {} nor {}", Self::V3, Self::V1))
    }

    /// Its `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "crd.projectcalico.org/v1",
            Self::V3 => "projectcalico.org/v3",
        }
    }

    /// Kind of the IPAM configuration.
    pub fn config_kind(self) -> &'static str {
        match self {
            Self::V1 => "IPAMConfig",
            Self::V3 => "IPAMConfiguration",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api_version())
    }
}
