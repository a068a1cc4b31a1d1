//! Saving: the input again, with the rows that changed replaced or left out (D-45).

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use ipam::mem::Kept;
use ipam::model::{AffinityKind, BlockKind, HandleKind};
use serde_json::{Map, Value};

use super::load::objects;
use super::pieces::{Form, Piece, cut};
use super::{Dump, DumpError};
use crate::group::Group;
use crate::wire::{Wire, decode, encode};

/// First line of every saved dump.
const MARK: &str = "# Simulated by ipam-operator: this is not the state of any cluster.\n";

/// What becomes of an object.
enum Fate {
    Keep,
    Drop,
    Replace(Map<String, Value>),
}

/// Writes the dump as the store has it now. Rows carry the revision and identity with which they were loaded, so that
/// applying the file to the cluster it came from is a compare-and-swap. One YAML input keeps its layout; anything
/// else becomes one YAML list.
///
/// # Errors
/// Input that cannot be read again, or a file that cannot be written.
pub fn save(dump: &Dump, path: &Path) -> Result<(), DumpError> {
    let failed = |e: std::io::Error| DumpError::new(path.display().to_string(), e.to_string());
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    out.write_all(MARK.as_bytes()).map_err(failed)?;
    let keeps_layout = dump.inputs.len() == 1 && !is_json(dump)?;
    if !keeps_layout {
        out.write_all(b"apiVersion: v1\nitems:\n").map_err(failed)?;
    }
    for input in &dump.inputs {
        let file = File::open(&input.path).map_err(|e| DumpError::new(&input.name, e.to_string()))?;
        cut(&input.name, BufReader::with_capacity(1 << 16, file), |piece| {
            let text = match piece {
                Piece::Frame(text) if keeps_layout => text.to_owned(),
                Piece::Frame(_) => return Ok(()),
                Piece::Object { text, form, .. } => {
                    saved(dump, text, form, keeps_layout).map_err(|why| DumpError::new(&input.name, why))?
                }
            };
            out.write_all(text.as_bytes()).map_err(failed)
        })?;
    }
    if !keeps_layout {
        out.write_all(b"kind: List\n").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

fn is_json(dump: &Dump) -> Result<bool, DumpError> {
    let mut json = false;
    for input in &dump.inputs {
        let file = File::open(&input.path).map_err(|e| DumpError::new(&input.name, e.to_string()))?;
        let start = std::io::Read::bytes(BufReader::new(file)).map_while(Result::ok).find(|b| !b.is_ascii_whitespace());
        json |= matches!(start, Some(b'{' | b'['));
    }
    Ok(json)
}

/// The text of one piece, as it is to be written.
fn saved(dump: &Dump, text: &str, form: Form, keeps_layout: bool) -> Result<String, String> {
    let is_row = text.contains("projectcalico.org/v1") || text.contains("projectcalico.org/v3");
    let mut fates = Vec::new();
    if is_row {
        for object in objects(text, form)? {
            fates.push((fate(dump, &object), object));
        }
        let untouched = fates.iter().all(|(f, _)| matches!(f, Fate::Keep));
        if untouched && keeps_layout {
            return Ok(text.to_owned());
        }
    } else if keeps_layout {
        return Ok(text.to_owned());
    } else {
        fates.extend(objects(text, form)?.into_iter().map(|o| (Fate::Keep, o)));
    }
    let mut out = String::new();
    for (fate, object) in fates {
        let object = match fate {
            Fate::Drop => continue,
            Fate::Keep => object,
            Fate::Replace(object) => object,
        };
        out.push_str(&match (form, keeps_layout) {
            (Form::Entry(column), true) => yaml_entry(&object, column)?,
            (Form::Document, true) => yaml_serde::to_string(&object).map_err(|e| e.to_string())?,
            _ => yaml_entry(&object, 0)?,
        });
    }
    Ok(out)
}

/// An object as an entry of a YAML list with its dash at `column`.
fn yaml_entry(object: &Map<String, Value>, column: usize) -> Result<String, String> {
    let text = yaml_serde::to_string(&[object]).map_err(|e| e.to_string())?;
    if column == 0 {
        return Ok(text);
    }
    let pad = " ".repeat(column);
    Ok(text.lines().map(|l| if l.is_empty() { "\n".into() } else { format!("{pad}{l}\n") }).collect())
}

fn fate(dump: &Dump, object: &Map<String, Value>) -> Fate {
    let of = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let Some(group) = Group::of(of("apiVersion")) else { return Fate::Keep };
    match of("kind") {
        "IPAMBlock" => fate_of::<BlockKind>(dump, object, group),
        "BlockAffinity" => fate_of::<AffinityKind>(dump, object, group),
        "IPAMHandle" => fate_of::<HandleKind>(dump, object, group),
        // We never write the others.
        _ => Fate::Keep,
    }
}

fn fate_of<K: Wire + Kept>(dump: &Dump, object: &Map<String, Value>, group: Group) -> Fate {
    let Ok(loaded) = decode::<K>(object.clone(), group) else { return Fate::Keep };
    match dump.store.peek::<K>(&loaded.row.key) {
        Some((row, _)) if row.revision == loaded.row.revision => Fate::Keep,
        Some((row, _)) => Fate::Replace(encode(&row, group)),
        // Not understood because it was there twice: never loaded, never dropped.
        None if dump.bad.iter().any(|b| b.object == format!("{}/{}", K::kind(group), K::object_name(&loaded.row.key))) => Fate::Keep,
        None => Fate::Drop,
    }
}
