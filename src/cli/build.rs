//! `konverge build`: prints the compiled Spec of a stack.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    CliContext,
    common_args::{Revisions, Stacks},
};
use crate::commands::{machine_key::MachineKey, selected_stacks::SelectedStacks};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        spec::{RuntimeKind, Spec},
        stack::Stack,
    },
};
use konverge_report::{
    escape::{self, log},
    json,
};
use konverge_run::compiler::{self, Compilers};
use konverge_secrets::redact;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge build storefront/dev                 one stack, as YAML
  konverge build --all --output json            every stack of the repository
  konverge build storefront/dev -o manifests | kubectl diff -f -")]
pub struct Args {
    #[command(flatten)]
    stacks: Stacks,
    #[command(flatten)]
    revisions: Revisions,
    /// A Spec file instead of stacks, printed in normal form; needs neither a repository nor KCL
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "all", "rev", "worktree", "base"])]
    spec: Option<PathBuf>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Yaml)]
    output: Output,
    /// Print secret values in clear text; refused in CI, where others read the log
    #[arg(long)]
    show_secrets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// The Spec as YAML
    Yaml,
    /// The Spec as JSON
    Json,
    /// Only the Kubernetes objects, for `kubectl`
    Manifests,
}

/// Runs the command.
///
/// # Errors
/// The first stack that does not compile, after the others have been printed.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    if args.show_secrets && context.in_ci() {
        return Err(UserError::new(
            ErrorKind::Usage,
            "`--show-secrets` prints secret values in clear text, and this is a CI job (CI is set), whose log others can read",
        )
        .hint("remove the option; `konverge apply` writes the values without showing them"));
    }
    if let Some(file) = &args.spec {
        print(args, context, &[(None, compiler::read_spec_file(file)?)]);
        return Ok(0);
    }
    let run = context.run();
    let SelectedStacks {
        workspace, stacks, ..
    } = args.stacks.open(&args.revisions, context).await?;
    let compilers = Compilers::new(&run, &workspace.config);
    let mut built = Vec::new();
    let mut failures = Vec::new();
    let specs = compilers.for_revision(&workspace).specs(&stacks).await;
    for (stack, result) in stacks.iter().zip(specs) {
        match result {
            Ok(spec) => built.push((Some(stack), spec)),
            Err(failure) => failures.push((&stack.id, failure)),
        }
    }
    run.check_interrupted()?;
    for (stack, note) in built
        .iter()
        .flat_map(|(stack, spec)| spec.notes.iter().map(move |note| (stack, note)))
    {
        let name = stack.map_or("", |stack: &Stack| stack.id.as_str());
        context.note(&format!(
            "{name}: warning: {}",
            log(&context.secrets.mask_foreign(note))
        ));
    }
    // In JSON mode stdout is one document: the Specs, or the error.
    if failures.is_empty() || args.output != Output::Json {
        print(args, context, &built);
    }
    context.end(compiler::join_failures(failures))
}

fn print(args: &Args, context: &CliContext, built: &[(Option<&Stack>, Spec)]) {
    let mut shown: Vec<Spec> = built.iter().map(|(_, spec)| spec.clone()).collect();
    if !args.show_secrets {
        // Markers of secrets are made with this machine's key, so that they are the same in each run.
        let key = MachineKey::read(&context.run());
        shown = redact::specs(&shown, &key.secrets);
        key.keep();
    }
    let stacks = built.iter().map(|(stack, _)| *stack);
    let specs: Vec<(Option<&Stack>, Spec)> = stacks.zip(shown).collect();
    match args.output {
        Output::Json => {
            let document = match specs.as_slice() {
                [(_, spec)] => {
                    let mut document = spec.to_document();
                    document.insert("version".to_owned(), json!(1));
                    Value::Object(document)
                }
                many => {
                    let of_stack = |(stack, spec): &(Option<&Stack>, Spec)| {
                        let stack = stack.as_ref()?;
                        let mut document = spec.to_document();
                        document.insert("stack".to_owned(), json!(stack.folder));
                        document.insert("id".to_owned(), json!(stack.id));
                        Some(Value::Object(document))
                    };
                    let stacks: Vec<Value> = many.iter().filter_map(of_stack).collect();
                    json!({"version": 1, "stacks": stacks})
                }
            };
            context.print(&json::document(&document));
        }
        Output::Yaml => {
            for (index, (stack, spec)) in specs.iter().enumerate() {
                head(context, specs.len(), index, *stack);
                context.print(&escape::yaml(&spec.to_document()));
            }
        }
        Output::Manifests => {
            let mut first = true;
            for (stack, spec) in specs {
                let (objects, others): (Vec<_>, Vec<_>) = spec
                    .resources
                    .into_iter()
                    .partition(|resource| resource.runtime == RuntimeKind::Kubernetes);
                for object in objects {
                    if !std::mem::take(&mut first) {
                        context.print("---\n");
                    }
                    context.print(&escape::yaml(&object.attributes));
                }
                if !others.is_empty() {
                    let of = stack.map(|stack| format!(" of {}", stack.id)).unwrap_or_default();
                    context.note(&format!(
                        "{} Terraform resources{of} were skipped: they are not manifests",
                        others.len()
                    ));
                }
            }
        }
    }
}

/// Prints a heading with the name of the next stack, if there are several stacks.
fn head(context: &CliContext, stacks: usize, index: usize, stack: Option<&Stack>) {
    if stacks < 2 {
        return;
    }
    if index > 0 {
        context.print("---\n");
    }
    if let Some(stack) = stack {
        context.print(&format!("# {} ({})\n", stack.id, log(stack.folder.as_str())));
    }
}
