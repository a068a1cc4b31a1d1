//! Which of the two API groups a cluster uses (wire-format.md 1.1).

use serde::Deserialize;

use super::answer::Purpose;
use super::connection::{ConnectError, Connection};
use crate::group::Group;

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// v3 if it alone is served; v1 where both are (the v3 one is an aggregated server over it), or neither.
pub fn choose<'a>(groups: impl IntoIterator<Item = &'a str>) -> Group {
    let groups: Vec<&str> = groups.into_iter().collect();
    let has = |group: Group| group.api_version().split_once('/').is_some_and(|(name, _)| groups.contains(&name));
    if has(Group::V3) && !has(Group::V1) { Group::V3 } else { Group::V1 }
}

/// Asks the server which group it serves.
///
/// # Errors
/// The server does not answer, or refuses.
pub async fn discover(connection: &Connection) -> Result<Group, ConnectError> {
    let answer = connection.read(Purpose::Get, "APIGroup", "/apis").await.understood(Purpose::Get, "APIGroup");
    let body = answer.map_err(|e| ConnectError::new(format!("discovery: {}", ipam::release::chain(&e))))?;
    let found: Groups = serde_json::from_slice(&body).map_err(|e| ConnectError::new(format!("discovery: {e}")))?;
    Ok(choose(found.groups.iter().map(|g| g.name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_or_neither_group_is_v1() {
        let (v1, v3) = ("crd.projectcalico.org", "projectcalico.org");
        for (groups, want) in [(&[][..], Group::V1), (&[v1], Group::V1), (&[v1, v3], Group::V1), (&["apps", v3], Group::V3)] {
            assert_eq!(choose(groups.iter().copied()), want, "{groups:?}");
        }
    }
}
