-- The health of an object of our kinds, for Argo CD: see docs/how-to/gitops.md.
local status = obj.status or {}
local is = {}
for _, condition in ipairs(status.conditions or {}) do
  is[condition.type] = condition
end
local function health(word, condition, otherwise)
  return {status = word, message = condition and condition.message or otherwise}
end
local function holds(kind)
  return is[kind] ~= nil and is[kind].status == "True"
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", nil, "it is being deleted")
elseif status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", nil, "Quorate has not looked at it yet")
elseif obj.spec.suspend then
  return health("Suspended", is.Ready)
elseif holds("Stalled") then
  return health("Degraded", is.Stalled)
elseif holds("Ready") then
  return health("Healthy", is.Ready)
end
return health("Progressing", is.Ready, "there is no condition Ready yet")
