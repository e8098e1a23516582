//! The effect of a change of `konverge.yaml` on each stack. Every key is listed here by destructuring, so that a new
//! key does not compile until its effect is decided.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Apply, ClusterChoice, ClusterConfig, Config, Drift, EffectiveStack, EndedNameConfig, HookWorkflow, Hooks,
    Kcl, PolicyConfig, PolicyExceptionConfig, PolicySetConfig, RolloutConfig, RolloutMatcher, StackRules,
    StackSides, State, WaveConfig, effective::matches, stack_glob::StackGlob,
};
use konverge_base::model::{StackId, setting_change::SettingChange, stack::Stack};

/// A setting with its value for a stack.
struct Setting {
    key: &'static str,
    effect: &'static str,
    value: Value,
}

fn setting(key: &'static str, value: impl Serialize) -> Setting {
    let value = serde_json::to_value(value).unwrap_or_default();
    Setting {
        key,
        effect: "",
        value,
    }
}

impl Setting {
    /// Says what a change of the value means for a stack.
    fn effect(self, effect: &'static str) -> Self {
        Self { effect, ..self }
    }
}

impl Config {
    /// Returns the keys whose effect changes with `after`, each with the stacks that it changes for. Only stacks that
    /// both revisions have are compared.
    pub fn setting_changes(&self, after: &Config, stacks: &[StackSides<'_>]) -> Vec<SettingChange> {
        let is_same = self == after;
        // Even if both files are equal, a stack with another folder or name may match other rules.
        let may_differ = |(before, now): &(&Stack, &Stack)| {
            !is_same
                || before.folder != now.folder
                || before.id != now.id
                || before.names != now.names
                || before.cluster != now.cluster
        };
        let pairs = stacks.iter().filter_map(|sides| sides.before.zip(sides.after));
        let pairs: Vec<_> = pairs.filter(may_differ).collect();
        let mut found: BTreeMap<&str, SettingChange> = BTreeMap::new();
        let mut add = |before: Setting, now: Setting, stacks: &mut dyn Iterator<Item = &StackId>| {
            if before.value != now.value {
                let change = found.entry(now.key).or_insert_with(|| SettingChange {
                    key: now.key.to_owned(),
                    effect: now.effect.to_owned(),
                    stacks: Vec::new(),
                });
                change.stacks.extend(stacks.cloned());
            }
        };
        let common = self.common_settings().into_iter().zip(after.common_settings());
        for (before, now) in common {
            add(before, now, &mut pairs.iter().map(|(_, stack)| &stack.id));
        }
        let (old, new) = (StackSettings::new(self), StackSettings::new(after));
        for (before, now) in &pairs {
            for (was, is) in old.settings(before).into_iter().zip(new.settings(now)) {
                add(was, is, &mut std::iter::once(&now.id));
            }
        }
        let mut changes: Vec<_> = found.into_values().collect();
        for change in &mut changes {
            change.stacks.sort();
            change.stacks.dedup();
        }
        changes.retain(|change| !change.stacks.is_empty());
        changes
    }

    /// Returns the settings that all stacks share.
    fn common_settings(&self) -> Vec<Setting> {
        let Self {
            version: _,
            // `exclude` and `include` only add and remove stacks, and the preview shows those as added and removed.
            exclude: _,
            include: _,
            state,
            // These keys are compared for each stack, in `settings`.
            clusters: _,
            logins: _,
            rollouts: _,
            gates: _,
            stacks: _,
            delivery: _,
            kcl,
            modules,
            terraform,
            secrets,
            outputs,
            apply,
            policy,
            // These keys have no effect on a stack.
            checks: _,
            drift,
            notify: _,
            set: _,
            portal: _,
            models: _,
            production: _,
        } = self;
        let State {
            url,
            options,
            id,
            lease,
            history,
            encrypt_to,
            accept_unmarked_until,
            kusion_releases,
            unsafe_no_lock,
        } = state;
        let Kcl {
            version,
            install: _,
            settings,
            sandbox,
            workers: _,
            timeout,
            memory_mib,
        } = kcl;
        let Apply {
            parallel_stacks: _,
            parallel_resources: _,
            ready_timeout,
            fail_early_after,
            health_rules,
            conflicts,
            deployments,
            hooks,
        } = apply;
        let Hooks {
            read,
            service_accounts,
            timeout: hook_timeout,
            // Workflows are compared for each stack, in `settings`.
            workflows: _,
        } = hooks;
        let PolicyConfig {
            drift: drift_policy,
            approvals,
            reviewers,
            actors,
            freeze,
            max_destructive,
            // Policy sets, exceptions and ended names are compared for each stack, in `settings`.
            sets: _,
            exceptions: _,
            ended_names: _,
            broken_base,
            unknown_pushers,
        } = policy;
        let Drift {
            stacks_per_run: _,
            budget: _,
            reconcile,
            stale_after: _,
            label,
        } = drift;
        vec![
            setting("state.url", (url, options))
                .effect("its state moves to another store, which does not have the current state"),
            setting("state.id", id)
                .effect("its state gets another repository id, and states with the old id are refused"),
            setting("state.lease", lease).effect("the term of its lease, or the wait for the lease, changes"),
            setting("state.history", history).effect("the number of old states that are kept changes"),
            setting("state.encrypt_to", encrypt_to)
                .effect("other keys can read its state: run `konverge state rekey`"),
            setting("state.accept_unmarked_until", accept_unmarked_until)
                .effect("its state is accepted without a mark of its writer until another date"),
            setting("state.kusion_releases", kusion_releases)
                .effect("its applies write Kusion's releases to another backend"),
            setting("state.unsafe_no_lock", unsafe_no_lock)
                .effect("its protection against two applies at once is switched on or off"),
            setting("kcl.version", version).effect("it is compiled by another version of the KCL core"),
            setting("kcl.settings", settings)
                .effect("its settings files are read by the rules of another Kusion version"),
            setting("kcl.sandbox", sandbox).effect("the sandbox of its compilation changes"),
            setting("kcl.timeout", timeout).effect("the time limit of its compilation changes"),
            setting("kcl.memory_mib", memory_mib).effect("the memory limit of its compilation changes"),
            setting("modules", modules).effect("the permissions of its applications' modules change"),
            setting("terraform", terraform)
                .effect("the Terraform binary, the providers or their permissions change"),
            setting("secrets", secrets).effect("its secret references use other stores or permissions"),
            setting("outputs.allow", &outputs.allow)
                .effect("the permissions to read outputs of other stacks change"),
            setting("apply.ready_timeout", (ready_timeout, fail_early_after))
                .effect("an apply waits for its resources longer or shorter"),
            setting("apply.health_rules", health_rules).effect("the readiness rules of its resources change"),
            setting("apply.conflicts", conflicts)
                .effect("conflicts with other field managers are resolved in another way"),
            setting("apply.deployments", deployments)
                .effect("its applies become deployments on GitHub, or no longer do"),
            setting("apply.hooks", (read, service_accounts, hook_timeout))
                .effect("the Jobs that run as hooks, or their time limit, change"),
            setting("policy.drift", drift_policy).effect("an apply handles drift in another way"),
            setting("policy.approvals", approvals).effect("the number of required approvals changes"),
            setting("policy.reviewers", reviewers).effect("the people who must approve it change"),
            setting("policy.actors", actors).effect("the people who may merge or start its apply change"),
            setting("policy.freeze", freeze).effect("its applies are frozen at other times"),
            setting("policy.max_destructive", max_destructive)
                .effect("the number of its resources that one apply may delete or replace changes"),
            setting("policy.broken_base", broken_base)
                .effect("a preview treats the stack differently if the base already fails"),
            setting("policy.unknown_pushers", unknown_pushers)
                .effect("approvals count differently at a forge that does not say who pushed"),
            setting("drift.reconcile", reconcile)
                .effect("restoring its drift automatically is switched on or off"),
            setting("drift.label", label).effect("the label of its drift issue changes"),
        ]
    }
}

/// The rules of a configuration that apply to single stacks.
struct StackSettings<'a> {
    config: &'a Config,
    rules: StackRules<'a>,
    waves: RolloutMatcher<'a>,
    sets: Vec<(Option<StackGlob>, &'a PolicySetConfig)>,
    exceptions: Vec<(Option<StackGlob>, &'a PolicyExceptionConfig)>,
    ended_names: Vec<(Option<StackGlob>, &'a EndedNameConfig)>,
    workflows: Vec<(Option<StackGlob>, &'a HookWorkflow)>,
}

/// Returns items with their compiled globs. An item without a glob applies to every stack.
fn with_globs<T>(items: &[T], glob: impl Fn(&T) -> Option<&str>) -> Vec<(Option<StackGlob>, &T)> {
    let items = items.iter();
    items
        .map(|item| (StackGlob::compile(glob(item).unwrap_or("**")), item))
        .collect()
}

/// Returns the items that apply to a stack.
fn of_stack<'a, T>(items: &[(Option<StackGlob>, &'a T)], stack: &Stack) -> Vec<&'a T> {
    let items = items.iter();
    let own = items.filter(|(glob, _)| matches(glob.as_ref(), &stack.id, &stack.folder));
    own.map(|(_, item)| *item).collect()
}

impl<'a> StackSettings<'a> {
    fn new(config: &'a Config) -> Self {
        Self {
            config,
            rules: config.rules(),
            waves: config.rollout_matcher(),
            sets: with_globs(&config.policy.sets, |set| set.stacks.as_deref()),
            exceptions: with_globs(&config.policy.exceptions, |exception| exception.stacks.as_deref()),
            ended_names: with_globs(&config.policy.ended_names, |line| Some(&line.stacks)),
            workflows: with_globs(&config.apply.hooks.workflows, |workflow| Some(&workflow.stacks)),
        }
    }

    /// Returns the settings of a stack that may differ from those of other stacks, always in the same order.
    fn settings(&self, stack: &Stack) -> Vec<Setting> {
        let config = self.config;
        let EffectiveStack {
            // The cluster is compared below, together with the one in stack.yaml.
            cluster: _,
            workspace,
            after,
            policy,
            environment,
            login,
            provider_identities,
            deliver,
            ignore,
        } = self.rules.for_stack(stack);
        let identity = login.as_ref().map(|name| (name, config.logins.get(name)));
        let delivery = deliver.map(|tool| (tool, &config.delivery));
        vec![
            setting("clusters", self.cluster(stack)).effect("its objects go to another cluster"),
            setting("stacks[].workspace", workspace).effect("the workspace of its applications changes"),
            setting("stacks[].after", after).effect("the stacks that are applied before it change"),
            setting("stacks[].policy", policy)
                .effect("the approvals or people that it needs, or the times when it is frozen, change"),
            setting("stacks[].environment", environment).effect("another environment's job applies it"),
            setting("logins", identity).effect("its identity at the cloud and the cluster changes"),
            setting("stacks[].provider_identities", provider_identities)
                .effect("the provider identities that its Spec may choose change"),
            setting("stacks[].deliver", delivery)
                .effect("another tool applies its objects, or from another registry"),
            setting("stacks[].ignore", ignore).effect("other fields are ignored after creation"),
            setting("rollouts", self.rollout(stack)).effect(
                "its wave or the gates before it change; a rollout under way must end first, or be ended by \
                    `konverge rollout abort`",
            ),
            setting("policy.sets", of_stack(&self.sets, stack))
                .effect("other policy sets are evaluated on its plan"),
            setting("policy.exceptions", of_stack(&self.exceptions, stack))
                .effect("other exceptions from policy sets apply to it"),
            setting("policy.ended_names", of_stack(&self.ended_names, stack))
                .effect("other earlier names of it are ended: policies that name them no longer apply to it"),
            setting("apply.hooks.workflows", of_stack(&self.workflows, stack))
                .effect("the workflows that run before or after its apply change"),
        ]
    }

    fn cluster(&self, stack: &Stack) -> Value {
        let name = match self.rules.cluster_of(stack) {
            ClusterChoice::Named(name) | ClusterChoice::Unknown(name) => name,
            ClusterChoice::Unconfigured | ClusterChoice::Ambiguous => return Value::Null,
        };
        let Some(cluster) = self.config.cluster(&name) else {
            return json!([name]);
        };
        let ClusterConfig {
            kubeconfig_env,
            context,
            in_cluster,
            // These keys have no effect on the objects of a stack.
            max_concurrent_requests: _,
            tests: _,
        } = cluster;
        json!([name, kubeconfig_env, context, in_cluster])
    }

    /// Returns the rollout of a stack, its wave, and the conditions after the wave.
    fn rollout(&self, stack: &Stack) -> Value {
        let (name, wave) = match self.waves.wave_of(&stack.folder) {
            Ok(Some(place)) => place,
            Ok(None) => return Value::Null,
            Err(several) => return json!(several.0),
        };
        let mut rollouts = self.config.rollouts.iter();
        let Some(RolloutConfig {
            name,
            waves,
            on_failure,
        }) = rollouts.find(|rollout| rollout.name == name)
        else {
            return Value::Null;
        };
        let WaveConfig {
            // The glob is not compared: if a change of it matters, the number of the wave changes.
            pattern: _,
            at_once,
            bake,
            gates,
        } = &waves[wave];
        let named: Vec<_> = gates
            .iter()
            .map(|gate| (gate, self.config.gates.get(gate)))
            .collect();
        json!([name, wave, at_once, bake, named, on_failure])
    }
}
