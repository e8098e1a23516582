//! [`EarlyCompiler`]: workers that start while the working tree is still being read. Both take about the same time.

use std::{path::Path, sync::Arc};

use crate::{RunContext, compiler::Compiler};
use konverge_base::checkout;
use konverge_config::{Config, FILE_NAME};

/// A compiler whose workers start in the background, for the `konverge.yaml` that is on the disk.
pub struct EarlyCompiler(Option<(Config, Arc<Compiler>)>);

impl EarlyCompiler {
    /// Starts the workers. An error is reported later, by the command that uses them.
    pub fn start(run: &RunContext, root: &Path) -> Self {
        let config = match checkout::read(root, FILE_NAME.as_ref()) {
            Ok(Some(text)) => Config::parse(&String::from_utf8_lossy(&text)).ok(),
            Ok(None) => Some(Config::default()),
            Err(_) => None,
        };
        Self(config.map(|config| {
            let compiler = Arc::new(Compiler::new(run, &config));
            let starting = Arc::clone(&compiler);
            tokio::spawn(async move {
                if let Err(error) = starting.pool().await {
                    tracing::debug!(%error, "the workers could not be started early");
                }
            });
            (config, compiler)
        }))
    }

    /// The compiler of a configuration: this one, if it was started with the same.
    pub fn into_compiler(self, run: &RunContext, config: &Config) -> Arc<Compiler> {
        match self.0 {
            Some((early, compiler)) if early == *config => compiler,
            _ => Arc::new(Compiler::new(run, config)),
        }
    }
}
