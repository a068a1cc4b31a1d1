//! Panels and dashboards as Grafana reads them (11 and later).

use serde_json::{Value, json};

use super::expand;

/// What selects the operator's series in dashboards.
const SELECTOR: &str = "job=~\"$job\", cluster=~\"$cluster\"";

/// How a panel shows its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The last value of each.
    Stat,
    /// Over time.
    Lines,
    /// Over time, on top of each other.
    Stacked,
    /// States over time: 1 is yes.
    States,
    /// A row for each set of labels, a column for each query.
    Table,
}

/// A panel.
pub struct Panel {
    title: &'static str,
    look: Look,
    unit: &'static str,
    width: u32,
    /// Legend, or title of the column, and query in short form.
    queries: Vec<(&'static str, String)>,
    /// Yellow and red from these on.
    thresholds: Option<(f64, f64)>,
    link: Option<(&'static str, &'static str)>,
}

impl Panel {
    /// A panel of the width of so many 24ths.
    pub fn new(title: &'static str, look: Look, unit: &'static str, width: u32, queries: &[(&'static str, &str)]) -> Self {
        let queries = queries.iter().map(|(legend, q)| (*legend, (*q).to_owned())).collect();
        Self { title, look, unit, width, queries, thresholds: None, link: None }
    }

    /// Yellow and red from these values on.
    #[must_use]
    pub fn thresholds(mut self, yellow: f64, red: f64) -> Self {
        self.thresholds = Some((yellow, red));
        self
    }

    /// The values of this column lead to another dashboard, as its variable of the same name.
    #[must_use]
    pub fn leads(mut self, column: &'static str, uid: &'static str) -> Self {
        self.link = Some((column, uid));
        self
    }

    fn json(&self, id: usize, x: u32, y: u32) -> Value {
        let kind = match self.look {
            Look::Stat => "stat",
            Look::Lines | Look::Stacked => "timeseries",
            Look::States => "state-timeline",
            Look::Table => "table",
        };
        let now = matches!(self.look, Look::Stat | Look::Table);
        let target = |(i, (legend, query)): (usize, &(&str, String))| {
            let ref_id = char::from(b'A' + i as u8).to_string();
            let format = if self.look == Look::Table { "table" } else { "time_series" };
            json!({
                "refId": ref_id, "expr": expand(query, SELECTOR), "legendFormat": legend, "instant": now, "range": !now, "format": format,
                "datasource": source(),
            })
        };
        let mut panel = json!({
            "id": id, "title": self.title, "type": kind, "datasource": source(),
            "gridPos": { "h": self.height(), "w": self.width, "x": x, "y": y },
            "targets": self.queries.iter().enumerate().map(target).collect::<Vec<_>>(),
            "fieldConfig": { "defaults": self.defaults(), "overrides": self.overrides() },
            "options": self.options(),
        });
        if self.look == Look::Table {
            panel["transformations"] = self.columns();
        }
        panel
    }

    fn height(&self) -> u32 {
        if self.look == Look::Stat { 4 } else { 8 }
    }

    fn defaults(&self) -> Value {
        let steps = match self.thresholds {
            None => json!([{ "color": "green", "value": null }]),
            Some((yellow, red)) => {
                json!([{ "color": "green", "value": null }, { "color": "yellow", "value": yellow }, { "color": "red", "value": red }])
            }
        };
        let stacking = if self.look == Look::Stacked { "normal" } else { "none" };
        let mappings = match self.look {
            Look::States => json!([{ "type": "value", "options": {
                "0": { "text": "no", "color": "#6b7280", "index": 0 }, "1": { "text": "yes", "color": "#2f6fb2", "index": 1 } } }]),
            _ => json!([]),
        };
        let custom = match self.look {
            Look::Lines | Look::Stacked => json!({
                "drawStyle": "line", "lineWidth": 1, "fillOpacity": if self.look == Look::Stacked { 40 } else { 8 }, "showPoints": "never",
                "stacking": { "mode": stacking, "group": "A" }, "thresholdsStyle": { "mode": if self.thresholds.is_some() { "dashed" } else { "off" } },
            }),
            Look::States => json!({ "fillOpacity": 70, "lineWidth": 0 }),
            Look::Table => json!({ "align": "auto" }),
            Look::Stat => json!({}),
        };
        let color = if self.look == Look::Stat || self.thresholds.is_some() { "thresholds" } else { "palette-classic" };
        json!({
            "unit": self.unit, "mappings": mappings, "custom": custom, "color": { "mode": if self.look == Look::Lines { "palette-classic" } else { color } },
            "thresholds": { "mode": "absolute", "steps": steps },
        })
    }

    fn overrides(&self) -> Value {
        let mut all = Vec::new();
        if let Some((column, uid)) = self.link {
            let url = format!(
                "/d/{uid}?var-{column}=${{__value.raw}}&${{datasource:queryparam}}&${{cluster:queryparam}}&${{job:queryparam}}&${{__url_time_range}}"
            );
            all.push(json!({
                "matcher": { "id": "byName", "options": column },
                "properties": [{ "id": "links", "value": [{ "title": "Look at it", "url": url }] }],
            }));
        }
        if self.look == Look::Table {
            let unit = |(title, unit): (&str, &str)| json!({ "matcher": { "id": "byName", "options": title }, "properties": [{ "id": "unit", "value": unit }] });
            all.extend([("Taken", "percentunit"), ("Full in", "d")].map(unit));
        }
        Value::Array(all)
    }

    fn options(&self) -> Value {
        match self.look {
            Look::Stat => {
                json!({ "reduceOptions": { "calcs": ["lastNotNull"] }, "colorMode": if self.thresholds.is_some() { "value" } else { "none" }, "textMode": "auto" })
            }
            Look::Lines | Look::Stacked => {
                json!({ "legend": { "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"] }, "tooltip": { "mode": "multi", "sort": "desc" } })
            }
            Look::States => {
                json!({ "mergeValues": true, "showValue": "never", "legend": { "displayMode": "list", "placement": "bottom" } })
            }
            Look::Table => json!({ "cellHeight": "sm", "showHeader": true }),
        }
    }

    /// Names of columns instead of `Value #A`.
    fn columns(&self) -> Value {
        let names: serde_json::Map<String, Value> = self
            .queries
            .iter()
            .enumerate()
            .map(|(i, (title, _))| {
                (if self.queries.len() == 1 { "Value".into() } else { format!("Value #{}", char::from(b'A' + i as u8)) }, (*title).into())
            })
            .collect();
        json!([
            { "id": "merge", "options": {} },
            { "id": "organize", "options": { "excludeByName": { "Time": true, "job": true, "namespace": true }, "renameByName": names } },
        ])
    }
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// A dashboard.
pub struct Dashboard {
    /// Its address.
    pub uid: &'static str,
    /// Its title.
    pub title: &'static str,
    /// A further variable, and the series that has it as a label.
    pub variable: Option<(&'static str, &'static str)>,
    /// Rows: title and panels.
    pub rows: Vec<(&'static str, Vec<Panel>)>,
}

impl Dashboard {
    /// As Grafana reads it.
    pub fn json(&self) -> Value {
        let (mut panels, mut y, mut id) = (Vec::new(), 0, 0);
        let mut next = || {
            id += 1;
            id
        };
        for (title, row) in &self.rows {
            panels.push(json!({ "id": next(), "type": "row", "title": title, "collapsed": false, "gridPos": { "h": 1, "w": 24, "x": 0, "y": y }, "panels": [] }));
            y += 1;
            let (mut x, mut height) = (0, 0);
            for panel in row {
                if x + panel.width > 24 {
                    (x, y, height) = (0, y + height, 0);
                }
                panels.push(panel.json(next(), x, y));
                (x, height) = (x + panel.width, height.max(panel.height()));
            }
            y += height;
        }
        json!({
            "uid": self.uid, "title": self.title, "tags": ["ipam"], "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
            "refresh": "1m", "time": { "from": "now-24h", "to": "now" }, "timezone": "browser",
            "templating": { "list": self.variables() },
            "annotations": { "list": [
                marked("Leader", "changes((sum without ($replica) (ipam_operator_leader{$sel}))[5m:1m]) > 0", "blue"),
                marked("Mode", "changes((M(ipam_operator_mode{mode=\"enforce\"}))[5m:1m]) > 0", "orange"),
            ] },
            "links": [{ "type": "dashboards", "title": "IPAM", "tags": ["ipam"], "asDropdown": false, "includeVars": true, "keepTime": true, "targetBlank": false }],
            "panels": panels,
        })
    }

    fn variables(&self) -> Vec<Value> {
        let query = |name: &str, query: String, all: Option<&str>| {
            let mut v = json!({
                "name": name, "type": "query", "datasource": source(), "query": { "query": query, "refId": name }, "definition": query, "refresh": 2, "sort": 1,
                "includeAll": all.is_some(), "multi": all.is_some(),
            });
            if let Some(all) = all {
                v["allValue"] = all.into();
                v["current"] = json!({ "text": ["All"], "value": ["$__all"] });
            }
            v
        };
        let mut all = vec![
            json!({ "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source" }),
            query("cluster", "label_values(ipam_operator_build_info, cluster)".into(), Some(".*")),
            query("job", "label_values(ipam_operator_build_info, job)".into(), None),
        ];
        if let Some((name, series)) = self.variable {
            all.push(query(name, format!("label_values({series}{{{SELECTOR}}}, {name})"), Some(".+")));
        }
        all
    }
}

fn marked(name: &str, query: &str, color: &str) -> Value {
    json!({ "name": name, "datasource": source(), "enable": true, "expr": expand(query, SELECTOR), "iconColor": color, "titleFormat": name, "step": "60s" })
}
