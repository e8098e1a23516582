//! The size of a release. Helm stores the chart and the printed objects, compressed, in one Secret.

use std::io::Write as _;

use base64::Engine as _;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use super::chart::Chart;

/// Estimates the size of a chart's release in bytes: compressed JSON in base64. The user's values count twice,
/// because they are stored as values and in the objects. Values of references are unknown and count zero.
pub(super) fn release_size(chart: &Chart) -> usize {
    let file = |(name, content): (&String, &Vec<u8>)| json!({"name": name, "data": base64(content)});
    let (templates, files): (Vec<_>, Vec<_>) = chart
        .files
        .iter()
        .partition(|(name, _)| name.starts_with("templates/"));
    let printed = files.iter().filter(|(name, _)| name.starts_with("manifests/"));
    let printed =
        printed.map(|(name, content)| format!("---\n# Source: {name}\n{}", String::from_utf8_lossy(content)));
    let release = json!({
        "name": chart.name,
        "chart": {
            "metadata": {"name": chart.name},
            "templates": templates.into_iter().map(file).collect::<Vec<Value>>(),
            "files": files.iter().copied().map(file).collect::<Vec<Value>>(),
        },
        "manifest": printed.collect::<String>(),
    });
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder
        .write_all(release.to_string().as_bytes())
        .and_then(|()| encoder.finish())
        .expect("memory takes every write");
    (compressed.len() + 2 * chart.given).div_ceil(3) * 4
}

fn base64(content: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(content)
}
