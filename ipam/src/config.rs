//! Writing the configuration.

use crate::clock::Clock;
use crate::model::{Config, ConfigKind};
use crate::store::{Datastore, Row, StoreError, Table};
use crate::{ConfigError, Ipam};

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Stores a configuration, if it is another one. The stored one need not be valid: this is how it is repaired.
    ///
    /// # Errors
    /// It breaks a rule; or the store failed, with [`StoreError::Conflict`] when somebody else was faster.
    pub async fn set_config(&self, config: &Config) -> Result<(), ConfigError> {
        config.validate().map_err(ConfigError::Invalid)?;
        match self.stored_config().await? {
            Some(row) if row.value == *config => Ok(()),
            Some(row) => Ok(Table::<ConfigKind>::update(&self.store, Row { value: config.clone(), ..row }).await.map(drop)?),
            None if *config == Config::default() => Ok(()),
            None => match self.create_over::<ConfigKind>(&(), config.clone()).await {
                Ok(_) => Ok(()),
                Err(StoreError::Exists) => Err(StoreError::Conflict.into()),
                Err(e) => Err(e.into()),
            },
        }
    }

    /// The configuration for a Windows host, which needs strict affinity.
    ///
    /// # Errors
    /// As [`Ipam::get_config`]; [`ConfigError::Invalid`] when affinity is not strict.
    pub async fn get_config_on_windows(&self) -> Result<Config, ConfigError> {
        let config = self.get_config().await?;
        if config.strict_affinity { Ok(config) } else { Err(ConfigError::Invalid("strictAffinity is required on Windows".into())) }
    }
}
