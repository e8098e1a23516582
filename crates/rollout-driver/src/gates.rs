//! Reads the metrics for the gates of a wave.

use std::collections::BTreeMap;

use konverge_base::error::chain;
use konverge_config::{GateConfig, PrometheusConfig, Span};
use konverge_metrics::{Measurement, MetricsError, Prometheus};
use konverge_rollout::{GateReading, read_gate};
use konverge_run::RunContext;

fn open(run: &RunContext, asked: &PrometheusConfig) -> Result<Prometheus, String> {
    let variable = |name: &str| {
        let value = run.var(name);
        value.ok_or_else(|| format!("the variable {name} is not set in this job"))
    };
    let url = variable(&asked.url_env)?;
    let token = asked.token_env.as_deref().map(variable).transpose()?;
    if let Some(token) = token {
        run.secrets.learn(token);
    }
    Prometheus::new(url, token).map_err(|error| chain(&error))
}

fn number(measured: Result<Measurement, MetricsError>) -> Result<f64, String> {
    Err(match measured {
        Ok(Measurement::Number(number)) => return Ok(number),
        Ok(Measurement::NoSeries) => "the query finds no series".to_owned(),
        Ok(Measurement::NotFinite(number)) => format!("the query returns {number}"),
        Ok(Measurement::Several(count)) => format!("the query returns {count} series, not one number"),
        Err(error) => chain(&error),
    })
}

/// Returns the reading of a gate; `None` if the gate has no numbers. A number that cannot be read has the reason
/// instead.
pub(super) async fn reading(run: &RunContext, gate: &GateConfig) -> Option<GateReading> {
    let asked = gate.prometheus.as_ref()?;
    let server = open(run, asked);
    let mut numbers = BTreeMap::new();
    for (name, query) in gate.queries() {
        let over = asked.over.map(Span::duration).filter(|_| name == "value");
        let number = match &server {
            Ok(server) => number(server.query(query, over).await),
            Err(why) => Err(why.clone()),
        };
        numbers.insert(name.to_owned(), number);
    }
    Some(read_gate(gate, &numbers))
}
