/**
 * Every call of the API by its name: method and path. The one list that the routes, the OpenAPI document and the client
 * share; it is data alone, so that a client carries no schema library.
 *
 * P1. Below `/api/v1`, unless the path is in ROOT.
 */
export const PATHS = {
  deployWorkflow: "PUT /workflows/{name}",
  validateScript: "POST /validate",
  listWorkflows: "GET /workflows",
  getWorkflow: "GET /workflows/{name}",
  patchWorkflow: "PATCH /workflows/{name}",
  archiveWorkflow: "DELETE /workflows/{name}",
  unarchiveWorkflow: "POST /workflows/{name}/unarchive",
  listVersions: "GET /workflows/{name}/versions",
  getVersion: "GET /workflows/{name}/versions/{number}",
  diffVersions: "GET /workflows/{name}/versions/{number}/diff/{other}",
  activateVersion: "POST /workflows/{name}/activate",
  consentToVersion: "POST /workflows/{name}/consent",
  getSnapshot: "GET /workflows/{name}/snapshot",

  runNow: "POST /workflows/{name}/run-now",
  pauseWorkflow: "POST /workflows/{name}/pause",
  resumeWorkflow: "POST /workflows/{name}/resume",
  setMode: "POST /workflows/{name}/mode",
  stepWorkflow: "POST /workflows/{name}/step",
  listHandlers: "GET /workflows/{name}/handlers",
  editState: "PUT /workflows/{name}/handlers/{handler}/state",
  listSlots: "GET /workflows/{name}/slots",
  settleOrphans: "POST /workflows/{name}/orphans",
  previewConsumer: "POST /workflows/{name}/preview/{consumer}",

  listTopics: "GET /workflows/{name}/topics",
  listEvents: "GET /workflows/{name}/topics/{topic}/events",
  publishEvents: "POST /workflows/{name}/topics/{topic}/events",
  receiveHook: "POST /hooks/{namespace}/{workflow}/{hook}",
  skipDelivery: "POST /deliveries/{id}/skip",
  requeueDelivery: "POST /deliveries/{id}/requeue",
  reprocessDelivery: "POST /deliveries/{id}/reprocess",
  listInputs: "GET /workflows/{name}/inputs",
  getInput: "GET /inputs/{id}",
  skipInput: "POST /inputs/{id}/skip",
  listOutputs: "GET /workflows/{name}/outputs",

  listRuns: "GET /runs",
  getRun: "GET /runs/{id}",
  exportRuns: "GET /export/runs",
  exportEvents: "GET /export/workflows/{name}/topics/{topic}/events",
  listJournal: "GET /runs/{id}/journal",
  listLogs: "GET /runs/{id}/logs",
  getTrace: "GET /runs/{id}/trace",
  approveRun: "POST /runs/{id}/approve",
  rejectRun: "POST /runs/{id}/reject",
  reconcileRun: "POST /runs/{id}/reconcile",
  retryRun: "POST /runs/{id}/retry",
  closeRun: "POST /runs/{id}/close",
  askConsequences: "POST /runs/{id}/consequences",
  startBulk: "POST /bulk/{action}",
  getBulk: "GET /bulk/{id}",

  listInbox: "GET /inbox",
  countInbox: "GET /inbox/count",
  acknowledgeInbox: "POST /inbox/{id}/acknowledge",

  listConnections: "GET /connections",
  getConnection: "GET /connections/{name}",
  putConnection: "PUT /connections/{name}",
  deleteConnection: "DELETE /connections/{name}",
  checkConnection: "POST /connections/{name}/check",
  getBindings: "GET /workflows/{name}/bindings",
  putBindings: "PUT /workflows/{name}/bindings",
  getGrants: "GET /workflows/{name}/grants",
  putGrants: "PUT /workflows/{name}/grants",

  getPolicies: "GET /policies",
  putPolicies: "PUT /policies",
  prependPolicy: "POST /policies/prepend",
  appendPolicy: "POST /policies/append",
  explainPolicy: "POST /policies/explain",

  listTokens: "GET /tokens",
  createToken: "POST /tokens",
  revokeToken: "DELETE /tokens/{id}",
  login: "POST /login",
  createLoginLink: "POST /login/links",
  logout: "POST /logout",
  getMe: "GET /me",
  listAudit: "GET /audit",
  getNamespace: "GET /namespaces/{ns}",
  putNamespace: "PUT /namespaces/{ns}",
  getNotifications: "GET /notifications",
  putNotifications: "PUT /notifications",
  listHosts: "GET /hosts",
  createBackup: "POST /backup",
  verifyStore: "POST /verify",
  openStream: "GET /stream",

  getHealth: "GET /healthz",
  getReadiness: "GET /readyz",
  getMetrics: "GET /metrics",
  getOpenApi: "GET /openapi.json",
  getDocs: "GET /docs",
} as const;

export type CallName = keyof typeof PATHS;

const ROOT: readonly string[] = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];

/** Method and whole path, with `{params}` in it. */
export function placeOf(name: CallName): { method: string; path: string } {
  const [method = "", path = ""] = PATHS[name].split(" ");
  return { method, path: ROOT.includes(path) ? path : `/api/v1${path}` }; // (P1)
}
