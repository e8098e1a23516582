//! Validates a `konverge.yaml` whose keys and types are correct: unknown schemes, names that are not defined, rules
//! that contradict each other.

use super::{
    Config, DriftPolicy, HookWorkflow, Notify, Reconcile, StackRule,
    config_problem::{Problem, problem},
    logins,
    stack_glob::glob_problem,
};
use konverge_base::model::{
    ClusterName, RepoPath, store_setting::STORE_SETTINGS, workspace_name::is_workspace_name,
};
use konverge_secrets::{AddressCredential, AddressParts, AddressQuery, credential_in, without_credentials};

/// The schemes of `state.url` that are supported.
const STORES: [&str; 9] = [
    "file", "s3", "gs", "az", "oss", "postgres", "mysql", "https", "http",
];

/// The schemes of `state.kusion_releases`: the backends of Kusion's releases.
const RELEASE_STORES: [&str; 4] = ["file", "s3", "gs", "oss"];

/// The schemes of `portal.publish`: the stores that a browser can read from, and that replace a page.
const PAGE_STORES: [&str; 5] = ["file", "s3", "gs", "az", "oss"];

impl Config {
    /// Returns the first problem of the file, with a hint.
    pub(super) fn problem(&self) -> Option<Problem> {
        let is_cluster = |name: &ClusterName| self.clusters.contains_key(name);
        self.version_problem()
            // Credentials are checked before every check whose message shows a value, because an address may contain a
            // password.
            .or_else(|| self.credentials_problem())
            .or_else(|| self.variable_problem())
            .or_else(|| self.notify.iter().find_map(Notify::problem))
            .or_else(|| self.store_problem())
            .or_else(|| self.store_options_problem())
            .or_else(|| self.release_store_problem())
            .or_else(|| self.provider_source_problem())
            .or_else(|| self.health_rules_problem())
            .or_else(|| self.secrets.problem(is_cluster))
            .or_else(|| self.state.recipients_problem(&self.secrets))
            .or_else(|| self.set.problem())
            .or_else(|| self.apply.hooks.workflows.iter().find_map(HookWorkflow::problem))
            .or_else(|| self.models.problem())
            .or_else(|| self.drift_problem())
            .or_else(|| self.portal_problem())
            .or_else(|| self.portal.problem())
            .or_else(|| self.policy.sets_problem())
            .or_else(|| self.policy.ended_names_problem())
            .or_else(|| folder_glob_problem("exclude", &self.exclude))
            .or_else(|| folder_glob_problem("include", &self.include))
            .or_else(|| folder_glob_problem("production", &self.production))
            .or_else(|| {
                let mut rules = self.outputs.allow.iter();
                rules.find_map(|rule| {
                    folder_glob_problem("outputs.allow", &[rule.from.clone(), rule.to.clone()])
                })
            })
            .or_else(|| self.data_checks_problem())
            .or_else(|| self.stacks.iter().find_map(|rule| self.stack_rule_problem(rule)))
            .or_else(|| self.login_problem())
            .or_else(|| {
                let is_used = self.stacks.iter().any(|rule| rule.deliver.is_some());
                self.delivery.problem(is_used, is_cluster)
            })
            .or_else(|| self.rollouts_problem())
    }

    fn version_problem(&self) -> Option<Problem> {
        let version = self.version.filter(|version| *version != 1)?;
        problem(format!("version {version} of the format is not supported"))
            .hint("this Konverge reads version 1; a newer file needs a newer Konverge")
    }

    fn store_problem(&self) -> Option<Problem> {
        let (scheme, _) = self.state.url.as_deref()?.split_once("://")?;
        let unknown = Some(scheme).filter(|scheme| !STORES.contains(scheme))?;
        problem(format!("state.url: unknown scheme `{}`", unknown.escape_debug()))
            .hint(format!("known are {}", STORES.join(", ")))
    }

    fn portal_problem(&self) -> Option<Problem> {
        let url = self.portal.publish.as_ref()?;
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        (!PAGE_STORES.contains(&scheme)).then_some(())?;
        problem(format!("portal.publish: `{}` is not the URL of a store of pages", url.escape_debug()))
            .hint("write `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `oss://BUCKET/PREFIX` or `file:///FOLDER`")
    }

    fn release_store_problem(&self) -> Option<Problem> {
        let url = self.state.kusion_releases.as_ref()?;
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        (!RELEASE_STORES.contains(&scheme)).then_some(())?;
        problem(format!(
            "state.kusion_releases: `{}` is not the URL of a backend of Kusion's",
            without_credentials(url).escape_debug()
        ))
        .hint("write `file:///home/me/.kusion`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `oss://BUCKET/PREFIX`")
    }

    /// Returns a problem if one of the addresses in the file contains credentials.
    fn credentials_problem(&self) -> Option<Problem> {
        let store = |url: &str| AddressParts {
            // The user name of a database may be in its URL; the password comes from the environment.
            user: url.starts_with("postgres://") || url.starts_with("mysql://"),
            query: AddressQuery::Settings(&STORE_SETTINGS),
        };
        let state = &self.state;
        let urls = [
            ("state.url", &state.url),
            ("state.kusion_releases", &state.kusion_releases),
            ("portal.publish", &self.portal.publish),
        ];
        let urls = urls.into_iter().filter_map(|(name, url)| {
            let url = url.as_deref()?;
            Some((name.to_owned(), url, store(url)))
        });
        let options = state.options.iter();
        let options = options.map(|(name, value)| (format!("state.options.{name}"), value));
        let recipients = state.encrypt_to.iter();
        let recipients = recipients.map(|value| ("state.encrypt_to".to_owned(), value));
        let lists = self.provider_values();
        let addresses = lists.flat_map(|(list, source, values)| {
            let key = format!("{list}.{source}");
            values.iter().map(move |value| (key.clone(), value))
        });
        let sources = self.terraform.providers.iter();
        let sources = sources.map(|provider| ("terraform.providers".to_owned(), &provider.source));
        let keys = self.secrets.stores.iter();
        let keys = keys.flat_map(|(name, store)| {
            let key = format!("secrets.stores.{name}.keys");
            store.keys.iter().map(move |value| (key.clone(), value))
        });
        let others = options
            .chain(recipients)
            .chain(addresses)
            .chain(sources)
            .chain(keys);
        let others = others.map(|(key, value)| (key, value.as_str(), AddressParts::default()));
        let found = urls
            .chain(others)
            .find_map(|(key, address, allowed)| Some((key, credential_in(address, allowed)?)));
        let (key, credential) = found?;
        let hint = "remove the credential from the address, because credentials come from the environment; if it is a real one, replace it by a new one";
        Some((
            format!(
                "{key} holds credentials: {credential}; this file is read by everybody who sees the repository"
            ),
            match credential {
                AddressCredential::Parameter(_) if key.starts_with("state.") => {
                    format!(
                        "{hint}; the settings of a store are {}",
                        STORE_SETTINGS.join(", ")
                    )
                }
                _ => hint.to_owned(),
            },
        ))
    }

    fn store_options_problem(&self) -> Option<Problem> {
        let mut names = self.state.options.keys();
        let name = names.find(|name| !STORE_SETTINGS.contains(&name.as_str()))?;
        problem(format!("state.options: unknown option `{}`", name.escape_debug()))
            .hint(format!("known are {}", STORE_SETTINGS.join(", ")))
    }

    /// Returns a problem if a key for the name of an environment variable has another value, such as the address
    /// itself.
    fn variable_problem(&self) -> Option<Problem> {
        let clusters = self.clusters.iter();
        let clusters = clusters.map(|(name, cluster)| {
            (
                format!("clusters.{name}.kubeconfig_env"),
                cluster.kubeconfig_env.as_ref(),
            )
        });
        let receivers = self.notify.iter().flat_map(|receiver| {
            let url = ("notify[].url_env".to_owned(), Some(&receiver.url_env));
            [url, ("notify[].key_env".to_owned(), receiver.key_env.as_ref())]
        });
        let login = self.portal.login.iter();
        let login = login.map(|login| {
            (
                "portal.login.client_secret_env".to_owned(),
                login.client_secret_env.as_ref(),
            )
        });
        let is_name = |name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(is_part)
        };
        let mut all = clusters.chain(receivers).chain(login);
        let (key, _) = all.find(|(_, value)| value.is_some_and(|value| !is_name(value)))?;
        let hint = "write the name of the variable, such as `CHAT_URL`, and set it from a secret in the job's `env:`";
        problem(format!("{key} is not the name of an environment variable")).hint(hint)
    }

    fn provider_source_problem(&self) -> Option<Problem> {
        let (list, source, _) = self.provider_values().find(|(_, source, _)| {
            !matches!(source.split('/').count(), 2 | 3) || source.split('/').any(str::is_empty)
        })?;
        problem(format!(
            "{list}: `{}` is not the source of a provider",
            source.escape_debug()
        ))
        .hint("write the source as under `terraform.providers`, such as `hashicorp/vault`")
    }

    /// Returns the values that a Spec may set in a provider's configuration: the configuration key, the source of the
    /// provider, the values.
    fn provider_values(&self) -> impl Iterator<Item = (&'static str, &String, &Vec<String>)> {
        let terraform = &self.terraform;
        let addresses = terraform.provider_addresses.iter();
        let addresses = addresses.map(|(source, values)| ("terraform.provider_addresses", source, values));
        let identities = terraform.provider_identities.iter();
        let of_rules = self.rule_identities();
        addresses
            .chain(identities.map(|(source, values)| ("terraform.provider_identities", source, values)))
            .chain(of_rules.map(|(source, values)| ("stacks[].provider_identities", source, values)))
    }

    /// Returns the values that rules allow the Specs of single stacks to set, by provider.
    fn rule_identities(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        let rules = self.stacks.iter();
        rules.flat_map(|rule| {
            rule.provider_identities
                .iter()
                .flat_map(std::collections::BTreeMap::iter)
        })
    }

    /// Returns the first problem of a login, or of a rule that names a login, with a hint.
    fn login_problem(&self) -> Option<Problem> {
        let of_logins = self
            .logins
            .iter()
            .find_map(|(name, login)| logins::login_problem(name, login));
        of_logins.or_else(|| {
            self.stacks.iter().find_map(|rule| {
                let login = rule.login.as_ref();
                let unknown = login.filter(|login| !self.logins.contains_key(*login))?;
                let defined: Vec<_> = self.logins.keys().map(|name| format!("`{name}`")).collect();
                let others = match defined.as_slice() {
                    [] => String::new(),
                    defined => format!("; defined are {}", defined.join(", ")),
                };
                problem(format!(
                    "stacks rule `{}` names login `{}`, which is not under `logins`",
                    rule.pattern.escape_debug(),
                    unknown.escape_debug()
                ))
                .hint(format!("define the login under `logins`{others}"))
            })
        })
    }

    fn health_rules_problem(&self) -> Option<Problem> {
        let folder = self.apply.health_rules.as_ref()?;
        let is_wrong = RepoPath::normalize(folder).is_none_or(|path| path.is_root());
        is_wrong.then_some(())?;
        problem(format!(
            "apply.health_rules: `{}` is not a folder of the repository",
            folder.escape_debug()
        ))
        .hint("write the path from the root, such as `ops/health`")
    }

    fn drift_problem(&self) -> Option<Problem> {
        let is_both = self.drift.reconcile == Reconcile::Restore && self.policy.drift == DriftPolicy::Stop;
        is_both.then_some(())?;
        problem("drift.reconcile restores drift, but policy.drift stops a stack with drift")
            .hint("remove one of the two keys")
    }

    fn data_checks_problem(&self) -> Option<Problem> {
        self.checks.data.iter().find_map(|check| {
            let wrong_glob = glob_problem("checks.data", &check.files, "write `appops/*/values/*.yaml`");
            wrong_glob.or_else(|| {
                check.schema_parts().is_none().then_some(())?;
                problem(format!(
                    "checks.data: `{}` is not a schema of the repository",
                    check.schema.escape_debug()
                ))
                .hint("write `PATH:NAME`, such as `base/pkg/values:Values`: the path from the root, and the name of the schema")
            })
        })
    }

    fn stack_rule_problem(&self, rule: &StackRule) -> Option<Problem> {
        let mut globs = rule.after.iter().flatten().chain([&rule.pattern]);
        let wrong_glob = globs.find_map(|glob| Some((glob, globset::Glob::new(glob).err()?)));
        if let Some((glob, error)) = wrong_glob {
            return problem(format!("`{}` is not a glob: {error}", glob.escape_debug()))
                .hint("write `appops/*/prod`");
        }
        if let Some(name) = rule.workspace.as_deref().filter(|name| !is_workspace_name(name)) {
            return problem(format!(
                "stacks rule `{}`: `{}` is not the name of a workspace",
                rule.pattern,
                name.escape_debug()
            ))
            .hint("write `prod` for the file `workspaces/prod.yaml`");
        }
        let cluster = rule.cluster.as_ref();
        let unknown = cluster.filter(|cluster| !self.clusters.contains_key(*cluster))?;
        problem(format!(
            "stacks rule `{}` names cluster `{unknown}`, which is not under `clusters`",
            rule.pattern
        ))
        .hint("define the cluster under `clusters`, or name a defined one")
    }
}

/// Returns a problem for the first of these globs that is invalid.
fn folder_glob_problem(key: &str, globs: &[String]) -> Option<Problem> {
    globs.iter().find_map(|glob| {
        let error = globset::Glob::new(glob.strip_prefix('!').unwrap_or(glob)).err()?;
        let what = format!("{key}: `{}` is not a glob: {error}", glob.escape_debug());
        problem(what).hint("write `examples/**`")
    })
}
