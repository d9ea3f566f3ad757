-- A script of the user's own, which sees its own KEYS and ARGV.
local keys, arguments = {}, {}
for i = 2, #KEYS do
    keys[i - 1] = KEYS[i]
end
for i = 2, #ARGV do
    arguments[i - 1] = ARGV[i]
end
local function script(KEYS, ARGV)
