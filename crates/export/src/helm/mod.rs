//! Charts for Helm 3 and 4. The objects are files in the chart, and one template prints them unchanged, so no text
//! in them is interpreted as a template. CustomResourceDefinitions get a chart of their own, because Helm does not
//! upgrade those in `crds/`.

mod chart;
mod release_size;

use std::collections::HashMap;

use konverge_base::model::{FieldPath, GroupKind};

use self::{chart::Chart, release_size::release_size};
use crate::{
    bundle::{Bundle, BundleObject, refuse, refused},
    document::{Document, Holds, Loss},
    edges::{KindOrder, positions, sorted_by_kind},
    error::{ExportError, ExportRefusal, Why},
    exported::{Exported, Files, obeyed_annotations},
    names::stack_slug,
    options::ChartOptions,
    value_places::Place,
};

const TARGET: &str = "helm";

/// Annotations that make an object a Helm hook. Hooks are not part of the release, so an uninstall keeps them.
const OBEYED: [&str; 2] = ["helm.sh/hook", "helm.sh/hook-weight"];

/// The label that Helm adds to each object.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The maximum size of a stored release in bytes: the limit of a Secret, minus a reserve for the user's values and
/// for differences between compressors.
const MOST: usize = 1_000_000;

/// The maximum size of a file in a chart in bytes, as Helm enforces it.
const MOST_FILE: usize = 5 << 20;

pub(crate) fn export(bundle: &Bundle, options: &ChartOptions) -> Result<Exported, ExportError> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => stack_slug(&bundle.stack),
    };
    chart::check_name(&name)?;
    let version = match &options.version {
        Some(version) => version.clone(),
        None => format!("0.1.0+spec.{}", bundle.digest.short()),
    };
    chart::check_version(&version)?;
    refuse(bundle, TARGET, obeyed_annotations(bundle, &OBEYED))?;
    // CustomResourceDefinitions get charts of their own, which are installed first and whose uninstall keeps the
    // definitions.
    let is_definition = |object: &&BundleObject| object.kind() == GroupKind::CUSTOM_RESOURCE_DEFINITION;
    let (definitions, others): (Vec<_>, Vec<_>) = bundle.objects.iter().partition(is_definition);
    let new =
        |name: String, objects: &[&BundleObject], keep| Chart::new(bundle, name, &version, objects, keep);
    let refused = |refusal| refused(bundle, TARGET, vec![refusal]);
    let mut charts = split(&definitions, &format!("{name}-crds"), &|name, objects| {
        new(name, objects, true)
    })
    .map_err(refused)?;
    let others = split(&others, &name, &|name, objects| new(name, objects, false));
    charts.extend(others.map_err(refused)?);
    Ok(finish(bundle, charts))
}

/// Splits objects into as few charts as Helm can store. The objects are sorted by level, so no edge leads to an
/// earlier chart.
fn split(
    objects: &[&BundleObject],
    name: &str,
    new: &dyn Fn(String, &[&BundleObject]) -> Chart,
) -> Result<Vec<Chart>, ExportRefusal> {
    let fits = |chart: &Chart| {
        let is_small = chart.files.values().all(|file| file.len() <= MOST_FILE);
        is_small && release_size(chart) <= MOST
    };
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let whole = new(name.to_owned(), objects);
    if fits(&whole) {
        return Ok(vec![whole]);
    }
    let mut charts = Vec::new();
    let mut rest = objects;
    while !rest.is_empty() {
        let name = format!("{name}-{}", charts.len() + 1);
        let one = |count: usize| new(name.clone(), &rest[..count]);
        // Binary search for the largest count that fits; a chart with `low` objects fits.
        let (mut low, mut high) = (0, rest.len());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(&one(middle)) {
                low = middle
            } else {
                high = middle - 1
            }
        }
        if low == 0 {
            return Err(ExportRefusal {
                id: rest[0].id.clone(),
                why: Why::TooLarge(release_size(&one(1)), MOST),
            });
        }
        charts.push(one(low));
        rest = &rest[low..];
    }
    Ok(charts)
}

fn finish(bundle: &Bundle, charts: Vec<Chart>) -> Exported {
    let mut places = HashMap::new();
    for (number, chart) in charts.iter().enumerate() {
        places.extend(
            chart
                .objects
                .iter()
                .map(|(id, file)| (id.clone(), (number, format!("{}/{file}", chart.name)))),
        );
    }
    let at = positions(bundle);
    let mut document = Document::new(
        bundle,
        TARGET,
        &|edge| match places[&edge.from].0.cmp(&places[&edge.to].0) {
            // The charts must be installed one after the other with `--wait`, so objects of an earlier chart are
            // ready.
            std::cmp::Ordering::Less => Ok(Holds::Ready),
            std::cmp::Ordering::Greater => Err(Loss::Order),
            std::cmp::Ordering::Equal => {
                let kind = |id| bundle.objects[at[id]].kind();
                let (from, to) = (kind(&edge.from), kind(&edge.to));
                sorted_by_kind(edge, from, KindOrder::Helm.is_before(from, to))
            }
        },
        &|at| places[&bundle.objects[at].id].1.clone(),
    );
    // Helm overwrites this label. An object with another value would differ from the Spec, so the export lists it.
    let labelled = bundle.objects.iter().filter(|object| {
        let label = object
            .body
            .get("metadata")
            .and_then(|metadata| metadata.get("labels")?.get(MANAGED_BY));
        label.is_some_and(|label| label != "Helm")
    });
    document.changed = labelled
        .map(|object| Place {
            id: object.id.clone(),
            path: FieldPath::new("/metadata/labels").join(MANAGED_BY),
        })
        .collect();
    let files = charts.into_iter().flat_map(|chart| {
        let name = chart.name;
        let files = chart.files.into_iter();
        files.map(move |(path, content)| (format!("{name}/{path}"), content))
    });
    Exported {
        files: files.collect::<Files>(),
        document,
    }
}
