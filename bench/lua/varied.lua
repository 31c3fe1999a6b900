-- wrk: requests for names drawn at random. They are written out beforehand and used in turn, so
-- that drawing them costs the load generator nothing while it measures.
-- Arguments: PATH_PREFIX NAMES_PER_REQUEST NAMES_IN_ALL

local PREPARED = 16384
local prepared, turn = {}, 0

function init(args)
   local prefix, per_request, names = args[1], tonumber(args[2]), tonumber(args[3])
   math.randomseed(20240602)
   for i = 1, PREPARED do
      local drawn = {}
      for n = 1, per_request do
         drawn[n] = string.format("sz%06d", math.random(0, names - 1))
      end
      prepared[i] = wrk.format(nil, prefix .. table.concat(drawn, ","))
   end
end

function request()
   turn = turn % PREPARED + 1
   return prepared[turn]
end
