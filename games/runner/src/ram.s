; Where the game keeps its state: at the addresses at which Super Mario Bros. keeps the same things, as far as these are
; publicly documented, so that a program which reads one game reads the other. What has no counterpart is marked "own".

.exportzp _frame_counter = $09
.exportzp _player_state  = $0E      ; 4 on the pole, 5 walks off, 6 dead, 7 enters, 8 plays, 11 dying
.exportzp _enemy_active  = $0F      ; five slots
.exportzp _enemy_type    = $16      ; 3 turns at edges, 6 walks on, 14 hops, 49 the flag
.exportzp _float_state   = $1D      ; 0 stands, 1 jumped, 2 fell, 3 slides down the pole
.exportzp _enemy_state   = $1E      ; 0 lives, otherwise frames left of lying flat
.exportzp _facing        = $33      ; 1 right, 2 left
.exportzp _player_speed  = $57      ; signed, pixels / 16 a frame
.exportzp _enemy_speed   = $58      ; signed, pixels / 16 a frame
.exportzp _player_page   = $6D      ; x = 256 * page + x
.exportzp _enemy_page    = $6E
.exportzp _player_x      = $86
.exportzp _enemy_x       = $87
.exportzp _player_fall   = $9F      ; signed, whole pixels a frame
.exportzp _enemy_fall    = $A0
.exportzp _player_y_page = $B5      ; 0 above the screen, 1 on it, 2 below
.exportzp _enemy_y_page  = $B6
.exportzp _player_y      = $CE      ; feet are 32 below
.exportzp _enemy_y       = $CF      ; feet are 24 below

; own
.exportzp _query_page = $40
.exportzp _query_x    = $41
.exportzp _query_y    = $42
.exportzp _draw_x     = $43
.exportzp _draw_y     = $44
.exportzp _draw_what  = $45
.exportzp _draw_how   = $46
.exportzp _oam_next   = $47
.exportzp _ready      = $48         ; set when a frame is complete, cleared when it is shown
.exportzp _split_on   = $49
.exportzp _show_page  = $4A         ; scroll position that goes with the complete frame
.exportzp _show_x     = $4B
.exportzp _column_ready = $4C
.exportzp _column_hi  = $4D
.exportzp _column_lo  = $4E
.exportzp _attr_hi    = $4F         ; 0: no attributes with this column
.exportzp _attr_lo    = $50
.exportzp _block_ready = $51
.exportzp _block_hi   = $52
.exportzp _block_lo   = $53
.exportzp _hud_on     = $54
.exportzp _shimmer    = $55
.exportzp _idle       = $56

.export _column_left  = $0300       ; 26 tiles
.export _column_right = $031A       ; 26 tiles
.export _column_attr  = $0334       ; 7 bytes
.export _block_tiles  = $033C       ; 4 tiles
.export _attributes   = $0340       ; 8 bytes for each of 16 columns of two blocks

.export _player_x_sub = $0400
.export _player_y_sub = $0416
.export _fall_sub     = $0433
.export _block_buffer = $0500       ; two screens of 13 rows of 16 blocks
.export _joypad       = $06FC       ; A B select start up down left right, from the highest bit
.export _screen_page  = $071A
.export _screen_x     = $071C
.export _lives        = $075A       ; 2: three lives
.export _level        = $075C       ; as shown, from 0
.export _coins        = $075E
.export _world        = $075F
.export _area         = $0760       ; as loaded, from 0
.export _mode         = $0770       ; 0 title, 1 game, 2 the end, 3 game over
.export _task         = $0772       ; 3: the level is being played
.export _paused       = $0776
.export _score        = $07DD       ; six digits
.export _coin_digits  = $07ED       ; two digits
.export _timer        = $07F8       ; three digits
