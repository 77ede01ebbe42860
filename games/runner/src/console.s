; What talks to the console: start, the frame interrupt, joypad, sprites, and the lookup of a block.
;
; The interrupt shows what the main program has made ready, and then waits for the beam to leave the status bar to set
; the scroll position. It does the latter also when the main program was late, so nothing ever jumps.

.import _main
.importzp sp
.importzp _frame_counter, _query_page, _query_x, _query_y, _draw_x, _draw_y, _draw_what, _draw_how, _oam_next
.importzp _ready, _split_on, _show_page, _show_x, _column_ready, _column_hi, _column_lo, _attr_hi, _attr_lo
.importzp _block_ready, _block_hi, _block_lo, _hud_on, _shimmer, _idle
.import _column_left, _column_right, _column_attr, _block_tiles, _joypad, _score, _coin_digits, _timer
.import _sprite_tl, _sprite_tr, _sprite_bl, _sprite_br
.export __STARTUP__ : absolute = 1
.export _tile_at, _draw_block_sprite, _wait_frame, _screen_off, _screen_on, _hide_sprites

PPU_CTRL   = $2000
PPU_MASK   = $2001
PPU_STATUS = $2002
OAM_ADDR   = $2003
PPU_SCROLL = $2005
PPU_ADDR   = $2006
PPU_DATA   = $2007
OAM        = $0200
STACK_TOP  = $06F8
CTRL       = %10001000              ; interrupt on, sprites from the second table
CTRL_DOWN  = %10001100              ; the same, writing downwards
FIRST_DIGIT = $30
STANDS_IN  = $0701                  ; a byte nobody reads
LATE       = $0702                  ; frames for which the main program was late

.segment "HEADER"
    .byte "NES", $1A, 2, 1, %00000001, 0    ; 32 KiB, 8 KiB, screens side by side, mapper 0

.segment "STARTUP"
reset:
    sei
    cld
    ldx #$FF
    txs
    inx
    stx PPU_CTRL
    stx PPU_MASK
    stx $4010
    lda #$40
    sta $4017
    bit PPU_STATUS
:   bit PPU_STATUS
    bpl :-
    txa
:   sta $00,x                       ; the same memory at every start
    sta $0100,x
    sta $0200,x
    sta $0300,x
    sta $0400,x
    sta $0500,x
    sta $0600,x
    sta $0700,x
    inx
    bne :-
:   bit PPU_STATUS
    bpl :-
    lda #$0F
    sta $4015
    lda #<STACK_TOP
    sta sp
    lda #>STACK_TOP
    sta sp+1
    jsr _hide_sprites
    lda #CTRL
    sta PPU_CTRL
    jmp _main

irq:
    rti

nmi:
    pha
    txa
    pha
    tya
    pha
    inc _frame_counter
    lda _ready
    bne @show
    lda _split_on
    beq @shown
    inc LATE
    jmp @shown
@show:
    lda #0
    sta OAM_ADDR
    lda #>OAM
    sta $4014
    lda _column_ready
    beq :+
    jsr column
:   lda _block_ready
    beq :+
    jsr block
:   lda _hud_on
    beq :+
    jsr status_bar
:   lda #0
    sta _ready
@shown:
    bit PPU_STATUS
    lda #CTRL
    sta PPU_CTRL
    lda #0
    sta PPU_SCROLL
    sta PPU_SCROLL
    lda _split_on
    beq @done
    ldx #0
@old:                               ; the hit of the last frame is there until this one begins
    inc STANDS_IN,x                 ; slow instructions: an emulator has fewer of them to do
    inc STANDS_IN,x
    inc STANDS_IN,x
    bit PPU_STATUS
    bvs @old
@wait:
    inc STANDS_IN,x
    inc STANDS_IN,x
    inc STANDS_IN,x
    bit PPU_STATUS
    bvc @wait
    lda _show_page
    and #1
    ora #CTRL
    sta PPU_CTRL
    lda _show_x
    sta PPU_SCROLL
    lda #0
    sta PPU_SCROLL
@done:
    pla
    tay
    pla
    tax
    pla
    rti

; Two columns of tiles, 26 high, and the palettes of two columns of blocks.
column:
    lda #CTRL_DOWN
    sta PPU_CTRL
    bit PPU_STATUS
    lda _column_hi
    sta PPU_ADDR
    lda _column_lo
    sta PPU_ADDR
    ldx #0
:   lda _column_left,x
    sta PPU_DATA
    inx
    cpx #26
    bne :-
    lda _column_hi
    sta PPU_ADDR
    ldx _column_lo
    inx
    stx PPU_ADDR
    ldx #0
:   lda _column_right,x
    sta PPU_DATA
    inx
    cpx #26
    bne :-
    ldy _attr_hi
    beq @done
    lda _attr_lo
    ldx #0
:   sty PPU_ADDR
    sta PPU_ADDR
    clc
    adc #8
    pha
    lda _column_attr,x
    sta PPU_DATA
    pla
    inx
    cpx #7
    bne :-
@done:
    lda #0
    sta _column_ready
    lda #CTRL
    sta PPU_CTRL
    rts

; One block, four tiles.
block:
    bit PPU_STATUS
    lda _block_hi
    sta PPU_ADDR
    lda _block_lo
    sta PPU_ADDR
    lda _block_tiles
    sta PPU_DATA
    lda _block_tiles+1
    sta PPU_DATA
    lda _block_lo
    clc
    adc #32
    tax
    lda _block_hi
    adc #0
    sta PPU_ADDR
    stx PPU_ADDR
    lda _block_tiles+2
    sta PPU_DATA
    lda _block_tiles+3
    sta PPU_DATA
    lda #0
    sta _block_ready
    rts

.macro digits place, what, count
    lda #>place
    sta PPU_ADDR
    lda #<place
    sta PPU_ADDR
    .repeat count, i
    lda what+i
    ora #FIRST_DIGIT
    sta PPU_DATA
    .endrepeat
.endmacro

status_bar:
    bit PPU_STATUS
    digits $2062, _score, 6
    digits $206D, _coin_digits, 2
    digits $207B, _timer, 3
    lda #$3F
    sta PPU_ADDR
    lda #$0F
    sta PPU_ADDR
    lda _shimmer
    sta PPU_DATA
    lda #$3F
    sta PPU_ADDR
    lda #$00
    sta PPU_ADDR
    sta PPU_ADDR
    sta PPU_ADDR
    rts

.segment "CODE"

; Wait until the interrupt has shown the frame, and read the joypad.
_wait_frame:
    lda #1
    sta _ready
    ldx #0
@wait:
    .repeat 8
    inc STANDS_IN,x
    .endrepeat
    lda _ready
    bne @wait
    lda #1
    sta $4016
    sta _joypad                     ; ends the loop when it comes out on the left
    lsr
    sta $4016
:   lda $4016
    and #3
    cmp #1
    rol _joypad
    bcc :-
    rts

_screen_off:
    lda #0
    sta _split_on
    jsr _wait_frame
    lda #0
    sta PPU_MASK
    rts

; Show the screen from the next frame on.
_screen_on:
    jsr _wait_frame
    lda #%00011110
    sta PPU_MASK
    lda #1
    sta _split_on
    rts

; Put all sprites below the screen, but for the first, which marks the lower edge of the status bar.
_hide_sprites:
    ldx #4
    lda #$F8
:   sta OAM,x
    inx
    inx
    inx
    inx
    bne :-
    lda #4
    sta _oam_next
    lda #23
    sta OAM
    lda #$01
    sta OAM+1
    lda #%00100000
    sta OAM+2
    lda #88
    sta OAM+3
    rts

; The block at a place in the level: row from y, column and screen from x.
_tile_at:
    lda _query_y
    sec
    sbc #32
    bcc @none
    cmp #208
    bcs @none
    and #$F0
    sta _idle
    lda _query_x
    lsr
    lsr
    lsr
    lsr
    ora _idle
    tay
    ldx #0
    lda _query_page
    lsr
    bcs @second
    lda $0500,y
    rts
@second:
    lda $05D0,y
    rts
@none:
    lda #0
    tax
    rts

; Four 8x8 sprites. Bit 6 of the attributes mirrors the whole.
_draw_block_sprite:
    ldx _oam_next
    cpx #$F1
    bcs @full
    ldy _draw_what
    lda _draw_y
    sec
    sbc #1
    sta OAM,x
    sta OAM+4,x
    clc
    adc #8
    sta OAM+8,x
    sta OAM+12,x
    lda _draw_how
    sta OAM+2,x
    sta OAM+6,x
    sta OAM+10,x
    sta OAM+14,x
    and #$40
    bne @mirrored
    lda _sprite_tl,y
    sta OAM+1,x
    lda _sprite_tr,y
    sta OAM+5,x
    lda _sprite_bl,y
    sta OAM+9,x
    lda _sprite_br,y
    sta OAM+13,x
    jmp @place
@mirrored:
    lda _sprite_tr,y
    sta OAM+1,x
    lda _sprite_tl,y
    sta OAM+5,x
    lda _sprite_br,y
    sta OAM+9,x
    lda _sprite_bl,y
    sta OAM+13,x
@place:
    lda _draw_x
    sta OAM+3,x
    sta OAM+11,x
    clc
    adc #8
    bcc :+
    lda #$F8                        ; the right half is off the screen
    sta OAM+4,x
    sta OAM+12,x
:   sta OAM+7,x
    sta OAM+15,x
    txa
    clc
    adc #16
    sta _oam_next
@full:
    rts

.segment "VECTORS"
    .word nmi, reset, irq

.segment "CHARS"
    .incbin "tiles.chr"
