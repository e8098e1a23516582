//! Reads a kubeconfig. Neither the kubeconfig nor any file or program that it names may be in the checkout.

use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, Kubeconfig, KubeconfigError, NamedContext};

use super::cluster_login::{ClusterLogin, ForeignIdentity};
use konverge_base::{
    checkout::{Checkout, Untrusted},
    model::text::first_few,
    variables,
};
use konverge_cloud::{CloudEnvironment, StackIdentity};

/// A kubeconfig that passed the checks.
#[derive(Debug)]
pub(crate) struct TrustedKubeconfig {
    pub file: Kubeconfig,
    /// The login of the used context, if Konverge replaces its credentials plugin.
    pub login: Option<ClusterLogin>,
    /// True if the used context logs in by a credentials plugin, even if Konverge replaces it.
    pub has_plugin: bool,
}

/// The variables and the identity for a login at a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoginOptions<'a> {
    /// The variables of the job.
    pub environment: &'a CloudEnvironment,
    /// The login of the stacks, which replaces the job's own identity.
    pub identity: Option<&'a StackIdentity>,
}

/// The name of the kubeconfig itself in an [`Untrusted`] error, which otherwise names a file in it.
pub(super) const ITSELF: &str = "the kubeconfig";

/// A kubeconfig that is refused or invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// A branch could have brought the kubeconfig, or a file that it names.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The identity in the kubeconfig conflicts with the stack's.
    #[error(transparent)]
    Foreign(#[from] ForeignIdentity),
    /// The kubeconfig cannot be read.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The kubeconfig does not have the context.
    #[error("{0}")]
    NoContext(String),
}

/// Maximum number of contexts that an error lists.
const LISTED: usize = 10;

/// Describes that a kubeconfig does not have the wanted context; `None` if the current context was wanted but none is
/// set.
fn missing(wanted: Option<&str>, known: &[NamedContext]) -> String {
    let quoted = |name: &str| format!("`{}`", name.escape_debug());
    let wanted = wanted.map_or("current context".to_owned(), |name| {
        format!("context {}", quoted(name))
    });
    let listed = match first_few(known.iter().map(|named| quoted(&named.name)), LISTED) {
        none if none.is_empty() => "no contexts".to_owned(),
        some => some,
    };
    format!("it has no {wanted}; it has {listed}")
}

/// Reads a kubeconfig. Without a path, reads the files of `$KUBECONFIG`, or else `~/.kube/config`.
///
/// In the used context (`None`: the current one), programs are replaced by their absolute paths, and run with
/// a `PATH` without folders of the checkout.
pub(crate) fn read(
    path: Option<&Path>,
    context: Option<&str>,
    checkout: &Checkout,
    login: LoginOptions<'_>,
) -> Result<TrustedKubeconfig, ReadError> {
    let files = match path {
        Some(path) => vec![path.to_owned()],
        None => default_files(),
    };
    if files.is_empty() {
        return Err(KubeconfigError::FindPath.into());
    }
    let mut all = Kubeconfig::default();
    for file in files {
        let file = std::path::absolute(&file).unwrap_or(file);
        checkout.trust(ITSELF, &file)?;
        all = all.merge(Kubeconfig::read_from(&file)?)?;
    }
    check(all, context, checkout, login)
}

/// Parses the text of a kubeconfig, with the same checks.
pub(crate) fn parse(
    text: &str,
    context: Option<&str>,
    checkout: &Checkout,
    login: LoginOptions<'_>,
) -> Result<TrustedKubeconfig, ReadError> {
    check(Kubeconfig::from_yaml(text)?, context, checkout, login)
}

fn check(
    mut all: Kubeconfig,
    context: Option<&str>,
    checkout: &Checkout,
    login: LoginOptions<'_>,
) -> Result<TrustedKubeconfig, ReadError> {
    let wanted = context.or(all.current_context.as_deref().filter(|name| !name.is_empty()));
    let context = all
        .contexts
        .iter()
        .find(|named| Some(named.name.as_str()) == wanted);
    let context = context.ok_or_else(|| ReadError::NoContext(missing(wanted, &all.contexts)))?;
    let context = context.context.clone().unwrap_or_default();
    let clusters = all.clusters.iter().filter(|named| named.name == context.cluster);
    for cluster in clusters.filter_map(|named| named.cluster.as_ref()) {
        // A certificate authority in the checkout would let a branch pass off another server as this cluster.
        if let Some(authority) = &cluster.certificate_authority {
            checkout.trust("`certificate-authority` of the kubeconfig", authority.as_ref())?;
        }
    }
    let (mut own, mut has_plugin) = (None, false);
    let users = all.auth_infos.iter_mut();
    for named in users.filter(|named| Some(&named.name) == context.user.as_ref()) {
        if let Some(user) = &mut named.auth_info {
            has_plugin = user.exec.is_some();
            own = own_login(user, checkout, login)?;
            if own.is_some() {
                user.exec = None;
            }
            // A plugin that Konverge does not replace must not log in with the job's own cloud identity.
            if let (Some(plugin), Some(identity)) = (&mut user.exec, login.identity) {
                let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
                let hidden = variables.filter(|name| identity.hides(name));
                plugin.drop_env.get_or_insert_default().extend(hidden);
            }
            check_user(user, checkout)?;
        }
    }
    Ok(TrustedKubeconfig {
        file: all,
        login: own,
        has_plugin,
    })
}

/// Describes which kubeconfig is read without a path. The value of `$KUBECONFIG` is shown only if it is the
/// path of a file, because somebody may have set it to the text of a kubeconfig.
pub(super) fn default_place() -> String {
    let files = default_files();
    if std::env::var_os(variables::KUBECONFIG).is_none_or(|list| list.is_empty()) {
        return match files.first() {
            Some(file) => format!("the kubeconfig `{}`", file.display()),
            None => ITSELF.to_owned(),
        };
    }
    match files.as_slice() {
        [file] if file.is_file() => format!("the kubeconfig `{}`, which KUBECONFIG names,", file.display()),
        [_] => "the file that the variable KUBECONFIG names".to_owned(),
        _ => "the kubeconfig of the files that the variable KUBECONFIG names".to_owned(),
    }
}

fn default_files() -> Vec<PathBuf> {
    let variable = std::env::var_os(variables::KUBECONFIG).unwrap_or_default();
    let named: Vec<_> = std::env::split_paths(&variable)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !named.is_empty() {
        return named;
    }
    let home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
    home.into_iter().collect()
}

/// Returns the login that replaces a credentials plugin: that of the stack, or the job's own if the plugin is
/// not installed or cannot use it.
fn own_login(
    user: &AuthInfo,
    checkout: &Checkout,
    login: LoginOptions<'_>,
) -> Result<Option<ClusterLogin>, ForeignIdentity> {
    let Some(plugin) = user.exec.as_ref() else {
        return Ok(None);
    };
    if let Some(identity) = login.identity
        && let Some(of_stack) = ClusterLogin::of_stack(plugin, identity, login.environment)?
    {
        return Ok(Some(of_stack));
    }
    let Some(of_job) = ClusterLogin::of_plugin(plugin, login.environment) else {
        return Ok(None);
    };
    let command = plugin.command.as_deref().unwrap_or_default();
    let is_installed = || {
        let program = checkout.executable("`exec.command` of the kubeconfig", command.as_ref());
        program.is_ok_and(|program| program.path().exists())
    };
    Ok((of_job.is_by_job() || !is_installed()).then_some(of_job))
}

fn check_user(user: &mut AuthInfo, checkout: &Checkout) -> Result<(), Untrusted> {
    let files = [
        ("client-certificate", &user.client_certificate),
        ("client-key", &user.client_key),
        ("tokenFile", &user.token_file),
    ];
    for (key, file) in files {
        if let Some(file) = file {
            checkout.trust(&format!("`{key}` of the kubeconfig"), file.as_ref())?;
        }
    }
    if let Some(exec) = &mut user.exec
        && let Some(command) = &mut exec.command
    {
        let program = checkout.executable("`exec.command` of the kubeconfig", command.as_ref())?;
        *command = program.path().display().to_string();
        let search_path = program.search_path().to_string_lossy().into_owned();
        let variables = [("name", variables::PATH.to_owned()), ("value", search_path)];
        let variables = variables.map(|(key, value)| (key.to_owned(), value));
        exec.env.get_or_insert_default().push(variables.into());
    }
    if let Some(command) = user
        .auth_provider
        .as_mut()
        .and_then(|provider| provider.config.get_mut("cmd-path"))
    {
        let program = checkout.executable("`cmd-path` of the kubeconfig", command.as_ref())?;
        *command = program.path().display().to_string();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_job(environment: &CloudEnvironment) -> LoginOptions<'_> {
        LoginOptions {
            environment,
            identity: None,
        }
    }

    fn written(folder: &Path, user: &str) -> PathBuf {
        let path = folder.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {{name: c, cluster: {{server: 'https://127.0.0.1:9'}}}}\n\
             contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\nusers:\n- name: u\n  user: {user}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_a_kubeconfig_names_is_not_taken_from_the_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let (root, home) = (folder.path().join("checkout"), folder.path().join("home"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        let checkout = Checkout::new(Some(&root), Some("/bin:.".as_ref()));
        let planted = root.join("x");
        let planted = planted.display();
        for user in [
            format!("{{tokenFile: {planted}}}"),
            format!("{{client-certificate: {planted}, client-key: /k}}"),
            "{exec: {apiVersion: v1, command: ../checkout/x}}".to_owned(),
            "{exec: {apiVersion: v1, command: not-there}}".to_owned(),
            "{exec: {apiVersion: v1, command: /proc/self/cwd/x}}".to_owned(),
            format!("{{auth-provider: {{name: gcp, config: {{cmd-path: {planted}}}}}}}"),
        ] {
            let read = read(
                Some(&written(&home, &user)),
                None,
                &checkout,
                of_job(&CloudEnvironment::default()),
            );
            assert!(matches!(read, Err(ReadError::Untrusted(_))), "{user}: {read:?}");
        }
        let text = std::fs::read_to_string(written(&home, &format!("{{tokenFile: {planted}}}"))).unwrap();
        let parsed = parse(&text, None, &checkout, of_job(&CloudEnvironment::default()));
        assert!(matches!(parsed, Err(ReadError::Untrusted(_))), "{parsed:?}");
        let read_plain = |folder| {
            let file = written(folder, "{exec: {apiVersion: v1, command: sh}}");
            read(
                Some(&file),
                Some("c"),
                &checkout,
                of_job(&CloudEnvironment::default()),
            )
        };
        let refused = read_plain(&root).unwrap_err().to_string();
        assert!(refused.contains("lies in the repository"), "{refused}");
        let good = read_plain(&home).unwrap();
        let exec = good.file.auth_infos[0]
            .auth_info
            .as_ref()
            .unwrap()
            .exec
            .as_ref()
            .unwrap();
        assert_eq!(exec.command.as_deref(), Some("/bin/sh"));
        assert_eq!(exec.env.as_ref().unwrap()[0]["value"], "/bin");
    }

    const ROLES: [&str; 2] = [
        "arn:aws:iam::111122223333:role/apply",
        "arn:aws:iam::111122223333:role/plan",
    ];

    fn at_aws() -> StackIdentity {
        let login = konverge_cloud::AwsLogin::of_login(ROLES[1].to_owned(), CloudEnvironment::default());
        StackIdentity {
            name: "prod".to_owned(),
            aws: Some(login),
            aws_roles: ROLES.map(str::to_owned).to_vec(),
            ..StackIdentity::default()
        }
    }

    /// `--role-arn` of the login is the login; whatever means another identity is refused, and never run as the job.
    #[test]
    fn a_kubeconfig_names_no_other_identity_than_the_login_s() {
        let folder = tempfile::tempdir().unwrap();
        // A machine may have the plugins of clouds.
        let programs = folder.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink("/bin/sh", programs.join("sh")).unwrap();
        let checkout = Checkout::new(None, Some(programs.as_os_str()));
        let (environment, identity) = (CloudEnvironment::default(), at_aws());
        let read = |user: &str| {
            let login = LoginOptions {
                environment: &environment,
                identity: Some(&identity),
            };
            read(Some(&written(folder.path(), user)), None, &checkout, login)
        };
        let aws = |more: &str, env: &str| {
            format!(
                "{{exec: {{apiVersion: v1, command: aws, args: [eks, get-token, --cluster-name, prod{more}], env: [{env}]}}}}"
            )
        };
        for more in [
            "",
            ", --region, eu-central-1",
            &format!(", --role-arn, {}", ROLES[0]),
            &format!(", --role-arn={}", ROLES[1]),
        ] {
            let own = read(&aws(more, "")).unwrap();
            assert!(matches!(own.login, Some(ClusterLogin::Eks(_))), "{more}");
            assert!(own.file.auth_infos[0].auth_info.as_ref().unwrap().exec.is_none());
        }
        for (more, env) in [
            (", --role-arn, arn:aws:iam::444455556666:role/apply", ""),
            (", --role-arn", ""),
            (", --role, arn:aws:iam::444455556666:role/apply", ""),
            (", --profile, other", ""),
            (", -x", ""),
            ("", "{name: AWS_PROFILE, value: other}"),
        ] {
            let refused = read(&aws(more, env)).unwrap_err();
            assert!(
                matches!(refused, ReadError::Foreign(_)),
                "{more} {env}: {refused}"
            );
        }
        // At another cloud the stack is nobody, and never the job; a plugin of no cloud runs without what is hidden.
        for plugin in [
            "command: gke-gcloud-auth-plugin",
            "command: /usr/bin/gke-gcloud-auth-plugin",
            "command: kubelogin, args: [get-token, --login, workloadidentity, --server-id, x]",
        ] {
            let refused = read(&format!("{{exec: {{apiVersion: v1, {plugin}}}}}")).unwrap_err();
            let said = refused.to_string();
            assert!(
                said.contains("where the login `prod` has no identity"),
                "{plugin}: {said}"
            );
        }
        let plain = read("{exec: {apiVersion: v1, command: sh}}").unwrap();
        let exec = plain.file.auth_infos[0]
            .auth_info
            .as_ref()
            .unwrap()
            .exec
            .as_ref()
            .unwrap();
        let hidden = std::env::vars().filter(|(name, _)| identity.hides(name)).count();
        assert_eq!(exec.drop_env.as_ref().map_or(0, Vec::len), hidden);
        assert!(plain.has_plugin && !read("{token: x}").unwrap().has_plugin);
    }
}
