//! [`EarlyCompiler`]: workers that start while the working tree is still being read, because both take about as long.

use std::{path::Path, sync::Arc};

use crate::{RunContext, compiler::Compilers};
use konverge_base::checkout;
use konverge_config::{Config, FILE_NAME};

/// Compilers whose workers start in the background, with the `konverge.yaml` of the working tree.
pub struct EarlyCompiler(Option<(Config, Arc<Compilers>)>);

impl EarlyCompiler {
    /// Starts the workers. A failure is reported later, by the command that uses them.
    pub fn start(run: &RunContext, root: &Path) -> Self {
        let config = match checkout::read(root, FILE_NAME.as_ref()) {
            Ok(Some(text)) => Config::parse(&String::from_utf8_lossy(&text)).ok(),
            Ok(None) => Some(Config::default()),
            Err(_) => None,
        };
        Self(config.map(|config| {
            let compilers = Arc::new(Compilers::new(run, &config));
            let starting = Arc::clone(&compilers);
            let core = config.kcl.core().to_owned();
            tokio::spawn(async move {
                if let Err(error) = starting.pool(&core).await {
                    tracing::debug!(%error, "failed to start the workers early");
                }
            });
            (config, compilers)
        }))
    }

    /// Returns compilers for a configuration: the early ones if they were started with the same one, otherwise new
    /// ones.
    pub fn into_compilers(self, run: &RunContext, config: &Config) -> Arc<Compilers> {
        match self.0 {
            Some((early, compilers)) if early == *config => compilers,
            _ => Arc::new(Compilers::new(run, config)),
        }
    }
}
