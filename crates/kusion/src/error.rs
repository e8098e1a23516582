//! Errors of an application, a workspace or a module.

use konverge_base::error::{ErrorKind, UserError};

/// Reasons why a stack of AppConfigurations gives no Spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum KusionError {
    /// The workspace file is invalid.
    #[error("{message}")]
    Workspace {
        file: String,
        /// The line, from 1, if the parser reports one.
        line: Option<u32>,
        message: String,
    },
    /// The workspace file is of Kusion 0.10 or 0.11.
    #[error("this is a workspace of Kusion 0.10 or 0.11: {what}")]
    OldWorkspace { file: String, what: String },
    /// The workspace contains a credential in clear text.
    #[error("`context.{key}` holds a credential, and everybody who reads this repository sees it")]
    Credential { file: String, key: String },
    /// The extensions of `project.yaml` or `stack.yaml` are invalid.
    #[error("extensions: {message}")]
    Extensions { file: String, message: String },
    /// The application is written for Kusion 0.10 or 0.11.
    #[error("`{app}` is an AppConfiguration of Kusion 0.10 or 0.11 (`{schema}`)")]
    OldApp { app: String, schema: String },
    /// A stack contains AppConfigurations, but no `kcl.mod` of its own that would name their modules.
    #[error("`{app}` is an AppConfiguration, and {why}")]
    NotOwnPackage { app: String, why: &'static str },
    /// The application is invalid.
    #[error("`{app}`: {message}")]
    App { app: String, message: String },
    /// The name of the application cannot be part of a Kubernetes object's name.
    #[error("`{app}` becomes part of the names of Kubernetes objects, which hold a-z, 0-9 and `-` only")]
    AppName { app: String },
    /// An accessory has no schema, or one that the repository defines itself, so that it belongs to no
    /// module.
    #[error("`{app}`: {place} {why}, so its module is unknown")]
    NoModule {
        app: String,
        place: String,
        why: &'static str,
    },
    /// The module is not among the dependencies.
    #[error("`{app}`: {place} is of the module `{module}`, which the stack's kcl.mod does not depend on")]
    NotADependency {
        app: String,
        place: String,
        module: String,
    },
    /// The module runs only as a process, and no response of it was passed in.
    #[error("`{app}`: {place} needs the module `{module}` ({source_text}), which was not run")]
    Foreign {
        app: String,
        place: String,
        module: String,
        source_text: String,
    },
    /// Two parts of an application belong to the same module, which is called only once.
    #[error(
        "`{app}`: {first} and {second} both use the module `{module}`, but an application can use a module only once"
    )]
    Twice {
        app: String,
        module: String,
        first: String,
        second: String,
    },
    /// The module rejects its settings, or its response is invalid.
    #[error("`{app}`: {place}: {message}")]
    Module {
        app: String,
        place: String,
        message: String,
    },
    /// A secret has no value for a key that its type requires.
    #[error("`{app}`: the secret `{secret}` of type `{kind}` has no `{key}`")]
    NoValue {
        app: String,
        secret: String,
        kind: String,
        key: &'static str,
    },
    /// The workspace imports one id from two resources.
    #[error("the workspace imports `{id}` from two resources: `{first}` and `{second}`")]
    ImportedTwice {
        id: String,
        first: String,
        second: String,
    },
}

impl From<KusionError> for UserError {
    fn from(error: KusionError) -> Self {
        use KusionError as K;
        let message = error.to_string();
        let layout = |message| UserError::new(ErrorKind::Layout, message);
        let spec = |message| UserError::new(ErrorKind::Spec, message);
        match error {
            K::Workspace { file, line, .. } => layout(message).at(file, line, None).hint(
                "a workspace has `modules: {NAME: {path, version, configs: {default: {…}}}}`, `context` and `secretStore`",
            ),
            K::OldWorkspace { file, .. } => layout(message).at(file, None, None).hint(
                "write the workspace as Kusion 0.12 does: `modules: {NAME: {path: oci://…, version: …, configs: {default: {…}}}}`; clusters go into `clusters` of konverge.yaml",
            ),
            K::Credential { file, .. } => layout(message).at(file, None, None).hint(
                "remove the credential and replace it by a new one: the job that applies has the credentials in its environment",
            ),
            K::Extensions { file, .. } => layout(message).at(file, None, None).hint(
                "write `extensions: [{kind: kubernetesNamespace, kubernetesNamespace: {namespace: NAME}}]`",
            ),
            K::OldApp { .. } => spec(message)
                .hint("depend on `kam` 0.2.0 or later in the stack's kcl.mod, and on the modules `service` or `job` for the workload"),
            K::NotOwnPackage { .. } => spec(message)
                .hint("give the stack's folder a `kcl.mod` with `[dependencies]` and `[profile] entries`, and leave `kcl.settings` of konverge.yaml at `v0.9.0`"),
            K::App { .. } => spec(message)
                .hint("an AppConfiguration has `workload`, `accessories`, `labels` and `annotations`"),
            K::AppName { .. } => spec(message).hint(
                "the variable's name is the application's name: write it without `_` and capitals, or as `\"my-app\": ac.AppConfiguration {…}`",
            ),
            K::NoModule { .. } => spec(message)
                .hint("write the accessory as an instance of a module's schema, such as `network.Network {…}`"),
            K::NotADependency { module, .. } => spec(message).hint(format!(
                "add `{module} = {{ oci = \"oci://…/{module}\", tag = \"…\" }}` to `[dependencies]`"
            )),
            K::Foreign { .. } => spec(message).hint(
                "`konverge doctor --module PATH` says whether the binary of the module answers",
            ),
            K::Twice { .. } => {
                spec(message).hint("merge the two parts into one: Kusion would drop one of them at random")
            }
            K::Module { .. } => spec(message),
            K::NoValue { key, .. } => spec(message).hint(format!(
                "give `data: {{{key}: …}}`, or give the secret a name of letters, digits and `-`, under which a value is made"
            )),
            K::ImportedTwice { .. } => layout(message).hint("keep one of the two entries of `importedResources`"),
        }
    }
}
