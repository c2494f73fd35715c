// Checks ServiceMonitor and PrometheusRule objects, given as a JSON file, against the schemas of the Prometheus operator.
import { readFileSync } from "node:fs";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const kinds = { PrometheusRule, ServiceMonitor };

async function fault(object) {
  try {
    await new kinds[object.kind](object).validate();
  } catch (error) {
    return error.message;
  }
}

const objects = JSON.parse(readFileSync(process.argv[2], "utf8"));
const seen = new Set(objects.map((object) => object.kind));
const faults = Object.keys(kinds).filter((kind) => !seen.has(kind)).map((kind) => `no ${kind} was rendered`);
for (const object of objects) {
  const why = await fault(object);
  if (why) faults.push(`${object.kind}: ${why}`);
}
// The schemas refuse what is wrong.
const broken = { ...objects.find((object) => object.kind === "ServiceMonitor"), spec: { selector: {}, endpoints: [{ port: 9090 }] } };
if (!(await fault(broken))) faults.push("a ServiceMonitor with a port that is not a name passes");
console.log(faults.length ? faults.join("\n") : `${objects.length} resources of the Prometheus operator are valid`);
process.exit(faults.length ? 1 : 0);
