//! `konverge export`: writes compiled stacks for other tools.

use std::path::PathBuf;

use serde_json::Value;

use super::{
    CliContext,
    common_args::{Revisions, Stacks},
};
use crate::commands::{
    export::{self, CompiledStack},
    selected_stacks::SelectedStacks,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};
use konverge_config::{DeliveryConfig, DeliveryTool};
use konverge_export::{
    ChartOptions, DeliverySource, Document, ExportTarget, Exported, LeaveOut, Loss, stack_slug,
};
use konverge_publish::{ArtifactReference, Published};
use konverge_report::{escape::log, plural};
use konverge_run::compiler::{self, Compilers};
use konverge_secrets::without_secrets;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge export helm storefront/dev --to charts
  konverge export flux storefront/staging storefront/prod --rev HEAD --to deploy --source https://github.com/acme/deploy --path deploy
  konverge export argocd storefront/dev --rev HEAD --to oci://ghcr.io/acme/storefront-dev:1.4.0
  konverge export helm storefront/dev --to charts --leave-out terraform")]
pub struct Args {
    /// The tool that will apply the stack
    #[arg(value_enum, value_name = "TOOL")]
    tool: Tool,
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    revisions: Revisions,
    /// A Spec file instead of stacks; needs neither a repository nor KCL
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "all", "rev", "worktree", "base"])]
    spec: Option<PathBuf>,
    /// A folder, in which each stack gets a folder of its own; for argocd and flux also `oci://HOST/NAME:TAG`
    #[arg(long, value_name = "DIR|URL")]
    to: String,
    /// Leave out what the tool cannot carry, and list it in konverge.json; may be repeated
    #[arg(long, value_enum, value_name = "WHAT")]
    leave_out: Vec<LeftOutKind>,
    /// Carry data of a Secret as it is where another text holds it: a resource and a path in it; may be repeated
    #[arg(long, value_name = "ID/PATH")]
    in_clear: Vec<String>,
    /// The value of an output of another stack that the stack reads, such as `db.endpoint=db.local`; JSON keeps its
    /// type
    #[arg(long = "output-value", value_name = "ALIAS.NAME=VALUE", value_parser = output_value)]
    output_values: Vec<(String, Value)>,
    /// The name of the chart; default: the stack's
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The version of the chart; default: made of the digest of the Spec
    #[arg(long, value_name = "VERSION")]
    chart_version: Option<String>,
    /// Where argocd or flux will find the files: a git repository, or `oci://HOST/NAME`. With it, the objects that
    /// tell the tool so are written to `delivery/`
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// The branch or tag of --source
    #[arg(long, value_name = "REV", requires = "source")]
    source_revision: Option<String>,
    /// The folder in --source that gets what --to gets
    #[arg(long, value_name = "DIR", requires = "source")]
    path: Option<String>,
}

fn output_value(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("it must have the form ALIAS.NAME=VALUE, such as db.endpoint=db.local")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((name.to_owned(), value))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// A chart for Helm 3 and 4
    Helm,
    /// Objects with sync waves for Argo CD
    Argocd,
    /// A folder a level for Flux
    Flux,
    /// An Application for KubeVela
    Oam,
    /// Objects of Crossplane's provider for Kubernetes
    Crossplane,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LeftOutKind {
    /// Terraform resources
    Terraform,
    /// Objects with data of Secrets
    Secrets,
}

impl Args {
    /// Returns the target of a stack. Its path in the source is known only if `--to` is a folder.
    fn target(&self, stack: &StackId, delivery: &DeliveryConfig) -> Result<ExportTarget, UserError> {
        let wrong = |what: &str| Err(UserError::new(ErrorKind::Usage, what));
        if self.tool != Tool::Helm && (self.name.is_some() || self.chart_version.is_some()) {
            return wrong("`--name` and `--chart-version` are for `konverge export helm`");
        }
        if !matches!(self.tool, Tool::Argocd | Tool::Flux) && self.source.is_some() {
            return wrong("`--source` is for `konverge export argocd` and `flux`");
        }
        let controller = match self.tool {
            Tool::Argocd => DeliveryTool::Argocd,
            _ => DeliveryTool::Flux,
        };
        let source = self.source.as_ref().map(|url| {
            let folder = self.path.as_deref().unwrap_or(".").trim_matches('/');
            DeliverySource {
                url: url.clone(),
                revision: self.source_revision.clone(),
                // In a git repository the path begins with the folder of `--to`. An artifact holds one stack, so
                // the stack is not in its path.
                path: match (url.starts_with("oci://"), folder) {
                    (true, folder) => folder.to_owned(),
                    (false, "" | ".") => stack_slug(stack),
                    (false, folder) => format!("{folder}/{}", stack_slug(stack)),
                },
                namespace: delivery.namespace(controller).to_owned(),
            }
        });
        Ok(match self.tool {
            Tool::Helm => ExportTarget::Helm(ChartOptions {
                name: self.name.clone(),
                version: self.chart_version.clone(),
            }),
            Tool::Argocd => ExportTarget::ArgoCd(source),
            Tool::Flux => ExportTarget::Flux(source),
            Tool::Oam => ExportTarget::Oam,
            Tool::Crossplane => ExportTarget::Crossplane,
        })
    }

    /// Returns the artifact to push; `None` if `--to` is a folder.
    fn artifact(&self) -> Result<Option<ArtifactReference>, UserError> {
        let usage = |what: &str| UserError::new(ErrorKind::Usage, what);
        if !self.to.starts_with("oci://") {
            return if self.to.contains("://") {
                Err(usage(
                    "`--to` is a folder, or an address that begins with `oci://`",
                ))
            } else {
                Ok(None)
            };
        }
        if !matches!(self.tool, Tool::Argocd | Tool::Flux) {
            return Err(
                usage("only `konverge export argocd` and `flux` push to a registry")
                    .hint("write a chart to a folder, then `helm package` and `helm push` it"),
            );
        }
        if self.source.is_some() {
            return Err(usage("an artifact does not hold the objects that point at it")
                .hint("write the objects to a folder, with `--to DIR --source oci://HOST/NAME`"));
        }
        Ok(Some(self.to.parse()?))
    }
}

/// Runs the command.
///
/// # Errors
/// The first stack that does not compile or cannot be exported, after the others have been written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let artifact = args.artifact()?;
    let leave_out = LeaveOut {
        terraform: args.leave_out.contains(&LeftOutKind::Terraform),
        secrets: args.leave_out.contains(&LeftOutKind::Secrets),
    };
    let CompiledStacks {
        stacks,
        mut failures,
        delivery,
    } = compiled(args, context).await?;
    export::check_names(stacks.iter().map(|stack| &stack.id))?;
    let given = [
        (args.name.is_some(), "--name"),
        (artifact.is_some(), "--to oci://…"),
    ];
    if let Some((_, option)) = given
        .iter()
        .find(|(given, _)| *given && stacks.len() + failures.len() > 1)
    {
        return Err(
            UserError::new(ErrorKind::Usage, format!("`{option}` is for one stack"))
                .hint("name the stack, or export the stacks one by one"),
        );
    }
    for stack in &stacks {
        run.check_interrupted()?;
        for note in &stack.spec.notes {
            context.note(&format!("{}: warning: {}", stack.id, log(&without_secrets(note))));
        }
        let target = args.target(&stack.id, &delivery)?;
        let exported = match export::wrap(stack, &target, leave_out, &args.in_clear) {
            Ok(exported) => exported,
            Err(failure) => {
                failures.push((stack.id.clone(), failure));
                continue;
            }
        };
        note_losses(context, &exported.document);
        let place = match &artifact {
            Some(artifact) => {
                let (published, digest) = export::push(&run, artifact, &exported).await?;
                match published {
                    Published::Pushed => format!("{artifact}@{digest}"),
                    Published::Unchanged => format!("{artifact}@{digest} (unchanged)"),
                }
            }
            None => export::write(&run, &context.current_dir.join(&args.to), &exported)?
                .display()
                .to_string(),
        };
        context.print(&summary(&exported, &place));
    }
    let failures = failures.iter().map(|(id, failure)| (id, failure.clone()));
    context.end(compiler::join_failures(failures))
}

/// The stacks to export, those that do not compile, and where their controllers are.
struct CompiledStacks {
    stacks: Vec<CompiledStack>,
    failures: Vec<(StackId, UserError)>,
    delivery: DeliveryConfig,
}

async fn compiled(args: &Args, context: &CliContext) -> Result<CompiledStacks, UserError> {
    let run = context.run();
    if let Some(file) = &args.spec {
        let spec = compiler::read_spec_file(&run.dir.join(file))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let id = StackId::new(None, "spec", &name).map_err(|error| {
            UserError::from_error(ErrorKind::Usage, error).hint("give the file a name without spaces")
        })?;
        let stack = CompiledStack {
            id,
            commit: None,
            spec,
        };
        return Ok(CompiledStacks {
            stacks: vec![stack],
            failures: Vec::new(),
            delivery: DeliveryConfig::default(),
        });
    }
    let SelectedStacks {
        workspace, stacks, ..
    } = args.stacks.open(&args.revisions, context).await?;
    let compilers = Compilers::new(&run, &workspace.config);
    let results = compilers.for_revision(&workspace).specs(&stacks).await;
    run.check_interrupted()?;
    let (mut compiled, mut failures) = (Vec::new(), Vec::new());
    let given = args.output_values.iter().cloned().collect();
    for (stack, result) in stacks.iter().zip(results) {
        let filled = |spec| export::with_values(&run.secrets, stack, &spec, &given);
        match result.map_err(UserError::from).and_then(filled) {
            Ok(spec) => compiled.push(CompiledStack {
                id: stack.id.clone(),
                commit: workspace.commit().cloned(),
                spec,
            }),
            Err(failure) => failures.push((stack.id.clone(), failure)),
        }
    }
    Ok(CompiledStacks {
        stacks: compiled,
        failures,
        delivery: workspace.config.delivery.clone(),
    })
}

fn summary(exported: &Exported, place: &str) -> String {
    let document = &exported.document;
    let objects: usize = document.levels.iter().map(Vec::len).sum();
    let levels = plural(document.levels.len(), "level");
    format!(
        "{}: {} in {levels} to {}\n",
        document.stack,
        plural(objects, "object"),
        log(place)
    )
}

/// Prints what an apply by Konverge does, but not the tool. `konverge.json` lists the same.
fn note_losses(context: &CliContext, document: &Document) {
    let stack = &document.stack;
    let note = |text: String| context.note(&format!("{stack}: {text}"));
    for left in &document.left_out {
        note(format!("left out ({}): {}", left.because, left.id));
    }
    for edge in &document.lost {
        let (from, to) = (&edge.from, &edge.to);
        note(match edge.lost {
            Loss::Order => format!(
                "order lost: Konverge applies {from} first, but the tool may apply {to} first ({})",
                edge.edge
            ),
            Loss::Readiness => format!(
                "wait lost: {to} does not wait until {from} is ready ({})",
                edge.edge
            ),
            Loss::LeftOut => format!(
                "order lost: {from} comes before {to}, and one of them is left out ({})",
                edge.edge
            ),
        });
    }
    for value in &document.values {
        note(format!(
            "required value: {} in `{}`, for {} at {}",
            log(&value.name),
            value.group,
            value.id,
            log(value.path.as_str())
        ));
    }
    for place in &document.in_clear {
        note(format!(
            "carried in clear although it looks like a secret: {} at {}",
            place.id,
            log(place.path.as_str())
        ));
    }
    for place in &document.changed {
        note(format!(
            "overwritten by the tool: {} at {}",
            place.id,
            log(place.path.as_str())
        ));
    }
    for id in &document.without_namespace {
        note(format!(
            "no namespace: {id} gets the namespace of the tool, if its kind is namespaced"
        ));
    }
    for id in &document.unprotected {
        note(format!(
            "not protected: the tool does not know the annotations of Konverge on {id}"
        ));
    }
}
