//! The objects of which there is one (wire-format.md 6, 9).

use ipam::model::{ClusterInfo, ClusterKind, Config, ConfigKind};
use serde_json::{Value, json};

use super::{FieldError, Object, Wire};
use crate::group::Group;

impl Wire for ConfigKind {
    fn take(object: &mut Object, group: Group) -> Result<((), Config, bool), FieldError> {
        let mut spec = object.spec()?;
        // On v1 there is no default of the API server: an absent flag decodes as false.
        let auto = spec.flag("autoAllocateBlocks")?.unwrap_or(group == Group::V3);
        let persistence = match spec.text("kubeVirtVMAddressPersistence")?.as_deref() {
            None | Some("" | "Enabled") => true,
            Some("Disabled") => false,
            Some(other) => return Err(spec.error("kubeVirtVMAddressPersistence", format!("{other:?} is neither Enabled nor Disabled"))),
        };
        let number = |name: &str, n: Option<i64>| {
            u32::try_from(n.unwrap_or(0)).map_err(|_| FieldError::new(format!("spec.{name}"), "is out of range"))
        };
        let config = Config {
            strict_affinity: spec.flag("strictAffinity")?.unwrap_or(false),
            auto_allocate_blocks: auto,
            max_blocks_per_host: number("maxBlocksPerHost", spec.integer("maxBlocksPerHost")?)?,
            vm_address_persistence: persistence,
            cooldown_seconds: number("ipCooldownSeconds", spec.integer("ipCooldownSeconds")?)?,
        };
        Ok(((), config, false))
    }

    fn put((): &(), value: &Config, _: Group, object: &mut Object) {
        let spec = object.spec_mut();
        spec.insert("strictAffinity".into(), value.strict_affinity.into());
        spec.insert("autoAllocateBlocks".into(), value.auto_allocate_blocks.into());
        for (name, n) in [("maxBlocksPerHost", value.max_blocks_per_host), ("ipCooldownSeconds", value.cooldown_seconds)] {
            if n > 0 {
                spec.insert(name.into(), n.into());
            }
        }
        if !value.vm_address_persistence {
            spec.insert("kubeVirtVMAddressPersistence".into(), "Disabled".into());
        }
    }

    fn object_name((): &()) -> String {
        "default".into()
    }

    fn kind(group: Group) -> &'static str {
        group.config_kind()
    }

    fn plural(group: Group) -> &'static str {
        match group {
            Group::V1 => "ipamconfigs",
            Group::V3 => "ipamconfigurations",
        }
    }
}

impl Wire for ClusterKind {
    fn take(object: &mut Object, _: Group) -> Result<((), ClusterInfo, bool), FieldError> {
        let spec = match object.0.get("spec") {
            None | Some(Value::Null) => return Ok(((), ClusterInfo::default(), false)),
            Some(_) => object.spec()?,
        };
        let guid = spec.peek("clusterGUID").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ready = match spec.peek("datastoreReady") {
            None => None,
            Some(Value::Bool(ready)) => Some(*ready),
            Some(_) => return Err(spec.error("datastoreReady", "is not true or false")),
        };
        Ok(((), ClusterInfo { guid, ready }, false))
    }

    fn put((): &(), value: &ClusterInfo, _: Group, object: &mut Object) {
        let spec = object.spec_mut();
        spec.insert("clusterGUID".into(), json!(value.guid));
        if let Some(ready) = value.ready {
            spec.insert("datastoreReady".into(), ready.into());
        }
    }

    fn object_name((): &()) -> String {
        "default".into()
    }

    fn kind(_: Group) -> &'static str {
        "ClusterInformation"
    }

    fn plural(_: Group) -> &'static str {
        "clusterinformations"
    }
}
