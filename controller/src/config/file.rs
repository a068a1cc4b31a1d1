//! The file, followed: whole file or nothing.

use std::path::{Path, PathBuf};

use ipam_accounting::schedule::Time;

use super::{ConfigError, Given, OperatorConfig, Values};

/// What became of a look at the file.
#[derive(Debug)]
pub enum Reload {
    /// It is as it was.
    Same,
    /// It was taken over; with the keys that changed and the keys whose change needs a restart.
    Taken(Box<OperatorConfig>, Vec<&'static str>, Vec<&'static str>),
    /// It is not valid: the old values stay.
    Rejected(String),
}

/// The configuration with its sources.
#[derive(Debug)]
pub struct Configured {
    given: Given,
    path: Option<PathBuf>,
    text: Option<String>,
    /// The values in force.
    pub values: Values,
    /// What was wrong with the file at the last look, if anything was.
    pub rejected: Option<String>,
    /// When values were taken over last.
    pub taken: Time,
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|e| ConfigError(vec![format!("{}: {e}", path.display())]))
}

fn gather(given: &Given, path: Option<&Path>, text: Option<&str>, now: Time) -> Result<(Values, OperatorConfig), ConfigError> {
    let name = path.map(|p| p.display().to_string()).unwrap_or_default();
    let values = Values::gather(given, text.map(|t| (name.as_str(), t)))?;
    let config = OperatorConfig::of(&values, now)?;
    Ok((values, config))
}

impl Configured {
    /// Reads everything for the first time.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn first(given: Given, path: Option<PathBuf>, now: Time) -> Result<(Self, OperatorConfig), ConfigError> {
        let text = path.as_deref().map(read).transpose()?;
        let (values, config) = gather(&given, path.as_deref(), text.as_deref(), now)?;
        Ok((Self { given, path, text, values, rejected: None, taken: now }, config))
    }

    /// Looks at the file again.
    pub fn look(&mut self, now: Time) -> Reload {
        let Some(path) = self.path.clone() else { return Reload::Same };
        let text = match read(&path) {
            // Between two versions of a mounted file there may be none for a moment.
            Err(e) => return self.reject(e.to_string()),
            Ok(text) if Some(&text) == self.text.as_ref() => return Reload::Same,
            Ok(text) => text,
        };
        self.text = Some(text.clone());
        match gather(&self.given, Some(&path), Some(&text), now) {
            Err(e) => self.reject(e.to_string()),
            Ok((mut values, _)) => {
                let restart = values.keep_until_restart(&self.values);
                match OperatorConfig::of(&values, now) {
                    Err(e) => self.reject(e.to_string()),
                    Ok(config) => {
                        let changed = values.changed_from(&self.values);
                        (self.values, self.rejected, self.taken) = (values, None, now);
                        Reload::Taken(Box::new(config), changed, restart)
                    }
                }
            }
        }
    }

    fn reject(&mut self, why: String) -> Reload {
        if self.rejected.as_ref() == Some(&why) {
            return Reload::Same;
        }
        self.rejected = Some(why.clone());
        Reload::Rejected(why)
    }
}
