//! Opens revisions in a job: commits only, with the power of the protected branch.

use std::sync::Arc;

use super::Job;
use crate::{
    config::{Config, Sandbox},
    error::Failure,
    model::{CommitId, affected::Affected, source::Source},
    ops::{
        At, Claims, KeyUse, Knowledge, Memory, Planning, Renamed, Target, Wanted, Workspace,
        build::Compiler,
        clusters::{GivenCluster, Live},
        health_rules, infrastructure, session, states,
    },
};

/// Two revisions and everything to plan their difference with.
pub(super) struct Opened {
    pub planning: Planning,
    pub targets: Vec<Target>,
    pub affected: Affected,
    pub stacks_in_repository: usize,
    /// What the job may do with it: less than was asked for if the protected branch's configuration is wrong.
    pub trust: Trust,
}

/// What a job may do with what it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The protected branch's configuration holds: store, clusters, policy.
    Protected,
    /// Spec is compared with Spec, and the review is recorded: a fork's pull request, from a job of this repository.
    Recorded,
    /// Spec is compared with Spec; no store, no cluster: this repository's own people, where merging applies nothing.
    Own,
    /// The same for a stranger, without any credential.
    None,
}

impl Trust {
    /// Whether it is a stranger's code.
    fn is_outside(self) -> bool {
        matches!(self, Self::Recorded | Self::None)
    }
}

impl Job {
    /// Opens base and head under the configuration that `protected`, a commit of the protected branch, has.
    ///
    /// # Errors
    /// A commit can not be fetched or read; configuration, core or store can not be used.
    pub(super) async fn open(
        &self,
        protected: &CommitId,
        base: &CommitId,
        head: &CommitId,
        trust: Trust,
    ) -> Result<Opened, Failure> {
        for commit in [protected, base, head] {
            self.repository.ensure(commit, self.credentials.as_ref()).await?;
        }
        let at = protected;
        let power = self.repository.revision(at)?;
        let proposed = Config::of(self.repository.revision(head)?.as_ref())?;
        let (protected, trust) = match Config::of(power.as_ref()) {
            Ok(config) => (config, trust),
            // This may be its repair, and has to be shown to go in: it is, with no power at all.
            Err(error) => {
                self.run.warn(
                    &format!(
                        "konverge.yaml of the protected branch ({}) can not be used, so Spec is compared with Spec and nothing is recorded as reviewed",
                        at.short()
                    ),
                    error,
                );
                let trust = if trust.is_outside() {
                    Trust::None
                } else {
                    Trust::Own
                };
                (Config::default(), trust)
            }
        };
        let mut config = proposed.with_power_from(&protected);
        if trust != Trust::Protected {
            config = without_power(&config);
        }
        if config != proposed && trust == Trust::Protected {
            self.run.notes.note(
                "note: konverge.yaml differs from the protected branch's in keys that grant power; the protected branch's holds until this is merged",
            );
        }
        // Nobody has reviewed this code yet: it is compiled behind every wall, unless the protected branch says otherwise.
        config.kcl.sandbox.get_or_insert(Sandbox::Required);
        let known = Knowledge::of(&self.run, &self.repository);
        let at_head = At::Commit(head.clone());
        let head_side = Workspace::open_knowing(&known, &self.repository, &at_head, Some(&config))?;
        head_side.layout.require_module()?;
        head_side.note_layout(&self.run);
        if trust == Trust::Protected
            && !health_rules::same(&config, power.as_ref(), head_side.source.as_ref())
        {
            self.run.notes.note(
                "note: rules of readiness differ from the protected branch's; the protected branch's hold until this is merged",
            );
        }
        let base_side = session::open_base(&known, &self.repository, base.clone(), &config)?;
        known.keep(&base_side);
        let affected = head_side.analysis.compare(&base_side.analysis);
        let targets = session::affected_targets(&affected, Some(&base_side), &head_side);
        let memory = match trust {
            Trust::Own | Trust::None => None,
            Trust::Protected | Trust::Recorded => self.memory(&protected, KeyUse::Make).await?,
        };
        let live = match trust {
            Trust::Own | Trust::None | Trust::Recorded => Live::Never,
            Trust::Protected => self.options.live.unwrap_or_else(|| match protected.clusters.is_empty() {
                true => {
                    self.run.notes.note(
                        "note: konverge.yaml on the protected branch defines no clusters, so Spec is compared with Spec",
                    );
                    Live::Auto
                }
                false => Live::Required,
            }),
        };
        Ok(Opened {
            stacks_in_repository: head_side.layout.stacks.len(),
            planning: self
                .planning(
                    config,
                    power.as_ref(),
                    trust,
                    (head_side, Some(base_side)),
                    memory,
                    live,
                )
                .await?,
            targets,
            affected,
            trust,
        })
    }

    /// What plans are made of where a commit of the protected branch is looked at by itself, under its own configuration.
    ///
    /// # Errors
    /// As [`Job::planning`].
    pub(super) async fn protected_planning(
        &self,
        config: Config,
        head: Workspace,
        memory: Memory,
    ) -> Result<Planning, Failure> {
        let live = self.options.live.unwrap_or(Live::Required);
        let files = Arc::clone(&head.source);
        self.planning(
            config,
            files.as_ref(),
            Trust::Protected,
            (head, None),
            Some(memory),
            live,
        )
        .await
    }

    /// What plans are made of in this job: head and base, under a configuration and the files that it names as `power`,
    /// a revision of the protected branch, has them. What is compiled of others' code is kept nowhere: a later run with
    /// more trust would read it.
    ///
    /// # Errors
    /// A setting of the infrastructure can not be used.
    pub(super) async fn planning(
        &self,
        config: Config,
        power: &dyn Source,
        trust: Trust,
        (head, base): (Workspace, Option<Workspace>),
        memory: Option<Memory>,
        live: Live,
    ) -> Result<Planning, Failure> {
        let given = GivenCluster::default();
        let mut compiler = Compiler::new(&self.run, &config);
        if let Some(memory) = &memory {
            compiler = compiler.sharing(memory)?;
        }
        if trust != Trust::Protected {
            compiler = compiler.without_writing_caches();
        }
        if trust.is_outside() {
            compiler = compiler.for_strangers(base.as_ref())?;
        }
        let setup = infrastructure::Setup {
            config: &config,
            files: Some(power),
            given: &given,
            live,
            memory: memory.as_ref(),
            wait: true,
        };
        Ok(Planning {
            runtimes: infrastructure::runtimes(&self.run, &setup).await?,
            wanted: Wanted::Compiled {
                compiler: Box::new(compiler),
                head: Box::new(head),
                base: base.map(Box::new),
            },
            run: self.run.clone(),
            config,
            memory,
            live,
            given,
            claims: Claims::default(),
            renamed: Renamed::default(),
        })
    }

    /// The states, if a store is configured: a folder of the runner would be gone with it.
    ///
    /// # Errors
    /// The store can not be used.
    pub(super) async fn memory(&self, config: &Config, key: KeyUse) -> Result<Option<Memory>, Failure> {
        if config.state.url.is_none() {
            return Ok(None);
        }
        states::open(&self.run, config, Some(&self.repository), key)
            .await
            .map(Some)
    }
}

/// The configuration with all power taken out: only how the repository is to be read and compiled remains.
fn without_power(config: &Config) -> Config {
    let config_without = Config {
        version: config.version,
        kcl: config.kcl.clone(),
        ..Config::default()
    };
    config_without.with_layout_of(config)
}
