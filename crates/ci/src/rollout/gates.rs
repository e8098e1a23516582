//! Reads the metrics for the gates of a wave.

use std::collections::BTreeMap;

use crate::job::Job;
use konverge_base::error::chain;
use konverge_config::{GateConfig, PrometheusConfig, Span};
use konverge_metrics::{Measurement, MetricsError, Prometheus};
use konverge_policy::rollout::{GateNumber, GateReading, read_gate};

/// Prometheus, at the address that an environment variable of the job has.
pub(super) struct PrometheusNumbers<'a>(pub &'a Job);

impl PrometheusNumbers<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.0
            .run
            .env
            .get(name)
            .filter(|value| !value.is_empty())
            .cloned()
    }

    fn open(&self, asked: &PrometheusConfig) -> Result<Prometheus, String> {
        let url = self.variable(&asked.url_env);
        let url = url.ok_or_else(|| format!("the variable {} is not set in this job", asked.url_env))?;
        let token = match &asked.token_env {
            Some(name) => {
                let token = self.variable(name);
                let token = token.ok_or_else(|| format!("the variable {name} is not set in this job"))?;
                self.0.run.secrets.learn(&token);
                Some(token)
            }
            None => None,
        };
        Prometheus::new(&url, token.as_deref()).map_err(|error| chain(&error))
    }

    /// Returns the numbers of a gate by name. A number that cannot be read has the reason instead.
    async fn numbers(&self, gate: &GateConfig, asked: &PrometheusConfig) -> BTreeMap<String, GateNumber> {
        let server = self.open(asked);
        let mut numbers = BTreeMap::new();
        for (name, query) in gate.queries() {
            let over = asked.over.map(Span::duration).filter(|_| name == "value");
            let number = match &server {
                Ok(server) => number(server.query(query, over).await),
                Err(why) => GateNumber::Missing(why.clone()),
            };
            numbers.insert(name.to_owned(), number);
        }
        numbers
    }
}

fn number(measured: Result<Measurement, MetricsError>) -> GateNumber {
    GateNumber::Missing(match measured {
        Ok(Measurement::Number(number)) => return GateNumber::Is(number),
        Ok(Measurement::NoSeries) => "the query finds no series".to_owned(),
        Ok(Measurement::NotFinite(number)) => format!("the query returns {number}"),
        Ok(Measurement::Several(count)) => format!("the query returns {count} series, not one number"),
        Err(error) => chain(&error),
    })
}

/// Returns the reading of a gate; `None` if the gate has no numbers.
pub(super) async fn reading(source: &PrometheusNumbers<'_>, gate: &GateConfig) -> Option<GateReading> {
    let asked = gate.prometheus.as_ref()?;
    Some(read_gate(gate, &source.numbers(gate, asked).await))
}
