//! `konverge models`: generated KCL models.

use clap::Subcommand;

use super::CliContext;
use konverge_base::error::UserError;
use konverge_model_sources as models;
use konverge_report::{escape::log, plural};
use konverge_secrets::without_secrets;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge models import crds/argocd --only Application     one kind of CRDs of the repository
  konverge models import cluster:prod --into base/pkg/prod  all kinds that a cluster serves
  konverge models import kubernetes@1.34 --only Deployment  a kind of a release of Kubernetes
  konverge models import schemas/aws.json --only aws_s3_bucket  of `terraform providers schema -json`
  konverge models record hashicorp/aws@6.25.0 aws_s3_bucket schemas of a provider, as data
  konverge models check                                     whether models are as their sources")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Generate models, and record their source in konverge.yaml
    Import {
        /// Files or folders with CRDs, OpenAPI documents or provider schemas; `kubernetes@1.34`; `cluster:NAME`
        #[arg(required = true, value_name = "SOURCE")]
        sources: Vec<String>,
        /// A kind, like `Application` or `aws_s3_bucket`, with what it uses; may be repeated
        #[arg(long, value_name = "KIND")]
        only: Vec<String>,
        /// The folder of the models; default: `base/pkg/` and the name of the source
        #[arg(long, value_name = "DIR")]
        into: Option<String>,
    },
    /// Record schemas of a Terraform provider as data, from which `import` makes models
    Record {
        /// The provider and its version, like `hashicorp/aws@6.25.0`
        #[arg(value_name = "PROVIDER@VERSION")]
        provider: String,
        /// A type of resources, like `aws_s3_bucket`
        #[arg(required = true, value_name = "RESOURCE")]
        resources: Vec<String>,
        /// What `terraform providers schema -json` printed; without it, Terraform is run
        #[arg(long, value_name = "FILE")]
        from: Option<String>,
        /// The file of the repository; default: `schemas/` and the name of the provider
        #[arg(long, value_name = "FILE")]
        into: Option<String>,
    },
    /// Generate the recorded models again in memory, and show what differs
    Check,
}

/// Runs the command; `check` returns 1 if a model is stale.
///
/// # Errors
/// A source cannot be read or translated, or the core is not available.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    match &args.action {
        Action::Import { sources, only, into } => {
            let report = models::import(&run, sources, only, into.as_deref()).await?;
            context.print(&format!("{}: {}\n", report.folder, plural(report.files, "file")));
            match report.unrecorded {
                Some(why) => context.note(&format!(
                    "not recorded in konverge.yaml, so no check compares it: {}",
                    log(&without_secrets(&why))
                )),
                None => context.note("the source is recorded in konverge.yaml under `models`"),
            }
            Ok(0)
        }
        Action::Record {
            provider,
            resources,
            from,
            into,
        } => {
            let file = models::record(&run, provider, resources, from.as_deref(), into.as_deref()).await?;
            context.print(&format!("{file}: {}\n", plural(resources.len(), "resource")));
            context.note(&format!(
                "`konverge models import {file}` makes models of the provider"
            ));
            Ok(0)
        }
        Action::Check => {
            let (count, stale) = models::check(&run).await?;
            for model in &stale {
                for difference in &model.differences {
                    context.print(&format!("{}: {}\n", log(model.file.as_str()), log(difference)));
                }
            }
            if stale.is_empty() {
                context.note(&format!("{} up to date", plural(count, "model folder")))
            } else {
                context.note("`konverge models import` with the same source writes the models again")
            }
            Ok(u8::from(!stale.is_empty()))
        }
    }
}
